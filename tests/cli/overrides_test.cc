// What --set does to the keys of a file, and to what is read before the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/document.h"
#include "cli/config/inputs.h"
#include "plan/run_plan.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"
#include "training/api/schedule.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;

// The file's key has no effect before the last of the overrides, and a repeated one between them
// takes nothing from it.
TEST(Overrides, ARepeatedOneTakesNothingFromKeysThatOthersTurnOn) {
  const std::string file = absl::StrCat(kMinimal, "[local]\nnesterov = true\n");
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"local.momentum=0.9"},
        {"run.rounds=3", "local.momentum=0.9"},
        {"run.rounds=3", "run.rounds=4", "local.momentum=0.9"},
        {"local.momentum=0.9", "run.rounds=3", "run.rounds=4"}}) {
    const auto config = Parse(file, overrides);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(config->run.local.nesterov) << testing::PrintToString(overrides);
  }
}

TEST(Overrides, ARepeatedOneTakesFromAKeyWhatTheFirstGaveIt) {
  const std::string file =
      absl::StrCat(kMinimal, "[local]\nlr_schedule = {kind = \"step\", gamma = 0.5}\n");
  const auto config = Parse(file, {"local.lr_schedule.kind=constant", "local.lr_schedule.kind=step",
                                   "local.lr_schedule.gamma=0.25"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.local.lr_schedule.gamma, 0.25);
}

TEST(Overrides, APathMayLookLikeANumber) {
  const auto config = Parse(kMinimal, {"run.out=2024"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->node.server.out, HasSubstr("2024"));
}

TEST(Overrides, PathsMayBeAList) {
  const auto config = Parse(kMinimal, {"plugins=[\"a.so\", \"b.so\"]"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.plugins.size(), 2u);
}

TEST(Overrides, AreFoundInTables) {
  const auto document = ParseDocument("[data]\nsource = \"csv\"\npath = \"a.csv\"\n", "file", "/");
  ASSERT_TRUE(document.ok()) << document.status();
  const auto source = [&](const std::vector<std::string>& overrides) -> std::string {
    const auto read = ParseOverrides(overrides);
    EXPECT_TRUE(read.ok()) << read.status();
    const auto value = Lookup(*document, *read, "data.source");
    EXPECT_TRUE(value.ok()) << value.status();
    const std::string* text =
        value.ok() && value->has_value() ? (*value)->As<std::string>() : nullptr;
    return text == nullptr ? "none" : *text;
  };
  EXPECT_EQ(source({}), "csv");
  EXPECT_EQ(source({"data={source=\"synthetic\"}"}), "synthetic");
  EXPECT_EQ(source({"data={path=\"b.csv\"}"}), "csv");
  EXPECT_EQ(source({"data={source=\"synthetic\"}", "data.source=npz"}), "npz");
  EXPECT_EQ(source({"data.source=npz", "data={source=\"synthetic\"}"}), "synthetic");
}

// A cosine over run.rounds, which a resume may change, would give rounds other rates.
TEST(Overrides, OfTheRoundsAloneChangeNoRateUnderAnEqualFingerprint) {
  for (const char* schedule : {"constant", "cosine", "{kind=\"step\",gamma=0.5}",
                               "{kind=\"exponential\",gamma=0.5}", "{kind=\"cosine\",rounds=8}"}) {
    const std::string set = absl::StrCat("local.lr_schedule=", schedule);
    const auto fewer = Parse(kMinimal, {set, "run.rounds=10"});
    const auto more = Parse(kMinimal, {set, "run.rounds=20"});
    ASSERT_TRUE(fewer.ok() && more.ok()) << fewer.status() << more.status();
    bool same_rates = true;
    for (uint32_t round = 1; round <= 10; ++round) {
      same_rates =
          same_rates && training::ScheduleFactor(training::LocalSchedule(fewer->run), round) ==
                            training::ScheduleFactor(training::LocalSchedule(more->run), round);
    }
    EXPECT_EQ(Fingerprint(fewer->run) == Fingerprint(more->run), same_rates) << schedule;
  }
}

TEST(Overrides, WordsAreNoInputs) {
  const testing_support::TemporaryFolder folder;
  folder.Write("zero", "a file of that name");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto config = Parse(kMinimal, {"model.init=zero"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(InputDigests().Json(*config).find("model.init"), std::string::npos);
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace macaw::cli
