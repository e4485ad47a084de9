// Rules, attacks and metrics by their formulas in NumPy, on the batches that traced runs had
// (tests/oracle/replay). Skipped without NumPy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/python.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using namespace testing_support;

constexpr int kParts = 4;  // of some 60 runs each

class Replay : public testing::TestWithParam<int> {};

TEST_P(Replay, NumPyReachesTheSameModelsAndMetrics) {
  if (const std::string why = WhyNoPython("numpy"); !why.empty()) GTEST_SKIP() << why;
  const Printed replay =
      RunShell(absl::StrCat(Python(), " ", MACAW_SOURCE_DIR "/tests/oracle/replay/replay.py",
                            " --macaw ", MACAW_BIN_DIR "/macaw --part ", GetParam(), "/", kParts));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  std::fputs(replay.text.c_str(), stdout);
}

INSTANTIATE_TEST_SUITE_P(Parts, Replay, testing::Range(1, kParts + 1),
                         [](const auto& part) { return absl::StrCat(part.param, "of", kParts); });

TEST(Trace, HasEveryTurnOfEveryRoundAndEachRowOncePerEpoch) {
  const std::string config = WriteConfig("trace");
  Simulation traced("traced", {config, "--trace", "--processes", "2", "--slots", "1", "--set",
                               "model.name=logistic", "--set", "local.epochs=2"});
  ASSERT_EQ(traced.Wait(), 0) << traced.output();
  size_t turns = 0;
  for (const char* worker : {"worker-0", "worker-1"}) {
    const auto text = ReadFile(absl::StrCat(traced.folder(), "/trace/", worker, ".jsonl"));
    ASSERT_TRUE(text.ok()) << text.status();
    for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      const nlohmann::json turn = nlohmann::json::parse(line);
      ++turns;
      std::vector<int> seen(turn["rows"].get<size_t>());
      ASSERT_EQ(turn["stages"].size(), 1u);
      for (const auto& batch : turn["stages"][0]["batches"]) {
        EXPECT_LE(batch.size(), 10u);
        for (const auto& row : batch) ++seen.at(row.get<size_t>());
      }
      EXPECT_THAT(seen, testing::Each(2)) << line;
    }
  }
  EXPECT_EQ(turns, 3u * 24u);

  Simulation plain("plain", {config, "--set", "model.name=logistic", "--set", "local.epochs=2"});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  EXPECT_FALSE(std::filesystem::exists(plain.folder() + "/trace"));
  EXPECT_EQ(plain.digest(), traced.digest());
}

TEST(Trace, SaysWhoIsHostile) {
  const std::string config = WriteConfig("trace", R"(
[attack]
kind = "free-rider"
fraction = 0.3
)");
  Simulation run("hostile",
                 {config, "--trace", "--processes", "1", "--set", "model.name=logistic"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::vector<int> traced, counted;  // by round
  for (const nlohmann::json& row : RowsOf(run)) {
    counted.push_back(row["rule_attackers"].get<int>());
    traced.push_back(0);
  }
  const auto text = ReadFile(absl::StrCat(run.folder(), "/trace/worker-0.jsonl"));
  ASSERT_TRUE(text.ok()) << text.status();
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const nlohmann::json turn = nlohmann::json::parse(line);
    const bool hostile = turn.contains("hostile");
    EXPECT_EQ(turn["stages"].empty(), hostile) << "a free-rider does not train: " << line;
    if (hostile) ++traced.at(turn["round"].get<size_t>() - 1);
  }
  EXPECT_EQ(traced, counted);
  EXPECT_THAT(counted, testing::Contains(testing::Gt(0)));
}

}  // namespace
}  // namespace macaw
