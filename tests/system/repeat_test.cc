// `macaw simulate --repeat` with real programs: interrupted, killed, tracked, reported, compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

// Softmax regression over a few generated clients: a run is a fraction of a second.
constexpr char kRepeated[] = R"([run]
name = "small"
rounds = 4
seed = 7
checkpoint_every = 1
[data]
source = "synthetic"
test_fraction = 0.2
[data.synthetic]
clients = 30
[model]
name = "logistic"
[cohort]
size = 10
[workers]
slots = 1
)";

class Repeats : public testing::Test {
 protected:
  Repeats() : config_(folder_.Write("small.toml", kRepeated)) {}

  // `macaw simulate small.toml --out exp` with these arguments.
  Printed Repeat(const std::string& arguments) const {
    return RunMacaw(absl::StrCat("simulate ", config_, " --out ", folder_ / "exp", " ", arguments));
  }
  std::string File(const std::string& name) const { return ReadFile(folder_ / name).value_or(""); }
  Json JsonIn(const std::string& name) const {
    return Json::parse(File(name), nullptr, /*allow_exceptions=*/false);
  }

  const TemporaryFolder folder_;
  const std::string config_;
};

TEST_F(Repeats, InterruptedOrKilledItGoesOnWithTheSameCommand) {
  ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", config_, " --rounds 300 --seed 8 --out ",
                                  folder_ / "alone"))
                .exit,
            0);
  for (const int signal : {SIGINT, SIGKILL}) {
    const std::string name = absl::StrCat("exp", signal);
    const std::vector<std::string> command = {config_, "--rounds", "300",         "--repeat",
                                              "2",     "--out",    folder_ / name};
    {
      Simulation first("first", command);
      ASSERT_TRUE(first.WaitForEvent([](const auto& event) { return event["event"] == "round"; },
                                     folder_ / (name + "-seed8")));
      first.Signal(signal);
      EXPECT_EQ(first.Wait(), signal == SIGINT ? 130 : 128 + SIGKILL) << first.output();
      EXPECT_EQ(first.output().find("the same command") != std::string::npos, signal == SIGINT);
    }
    Simulation second("second", command);
    ASSERT_EQ(second.Wait(), 0) << second.output();
    EXPECT_EQ(JsonIn(name + "-seed8/summary.json")["model_digest"],
              JsonIn("alone/summary.json")["model_digest"]);
    const std::string file = File(name + "-repeat.json");
    EXPECT_EQ(Json::parse(file)["seeds"], Json({7, 8}));

    Simulation other("other", {config_, "--repeat", "2", "--out", folder_ / name});
    EXPECT_EQ(other.Wait(), 2);
    EXPECT_THAT(other.output(), HasSubstr("run.rounds 300 there, 4 here"));
    EXPECT_EQ(File(name + "-repeat.json"), file);
  }
}

TEST_F(Repeats, OneRunIsARepeatThatTakesMore) {
  const Printed one = Repeat("--repeat 1");
  ASSERT_EQ(one.exit, 0) << one.text;
  EXPECT_THAT(one.text, ContainsRegex("runs +1\n"));
  EXPECT_TRUE(JsonIn("exp-repeat.json")["metrics"]["test_loss"]["std"].is_null());
  const std::string first = File("exp-seed7/summary.json");
  const Printed three = Repeat("--repeat 3");
  ASSERT_EQ(three.exit, 0) << three.text;
  EXPECT_THAT(three.text, ContainsRegex("seeds +7 to 9\n"));
  EXPECT_EQ(File("exp-seed7/summary.json"), first) << "it is not done again";
  // A smaller number shows what is over.
  EXPECT_THAT(Repeat("--repeat 2").text, ContainsRegex("seeds +7 to 9\n"));
}

TEST_F(Repeats, ARunThatFailsIsTriedAgainByTheSameCommand) {
  ASSERT_EQ(Repeat("--repeat 3").exit, 0);
  std::filesystem::remove_all(folder_ / "exp-seed8");
  folder_.Write("exp-seed8", "in the way");
  const Printed failed = Repeat("--repeat 3");
  EXPECT_EQ(failed.exit, 1) << failed.text;
  EXPECT_THAT(failed.text, AllOf(ContainsRegex("runs +2 of 3\n"), ContainsRegex("seeds +7, 9\n"),
                                 ContainsRegex("failed: seed8: .*exp-seed8 is a file")));
  std::filesystem::remove(folder_ / "exp-seed8");
  const Printed again = Repeat("--repeat 3");
  EXPECT_EQ(again.exit, 0) << again.text;
  EXPECT_THAT(again.text, ContainsRegex("seeds +7 to 9\n"));
}

TEST_F(Repeats, EachRunHasItsOwnTracker) {
  const Printed repeat = Repeat("--repeat 2 --set 'run.track=[\"csv\"]'");
  ASSERT_EQ(repeat.exit, 0) << repeat.text;
  for (const char* run : {"exp-seed7", "exp-seed8"}) {
    const std::string rows = File(absl::StrCat(run, "/metrics.csv"));
    EXPECT_EQ(std::ranges::count(rows, '\n'), 5) << run << ": a head and four rounds\n" << rows;
  }
}

TEST_F(Repeats, ReportAndCompareTakeItsFileAndItsFolder) {
  ASSERT_EQ(Repeat("--repeat 2").exit, 0);
  const std::string file = folder_ / "exp-repeat.json", folder = folder_ / "exp-repeat";
  const Printed page = RunMacaw("report -o - " + file);
  ASSERT_EQ(page.exit, 0) << page.text;
  EXPECT_THAT(page.text, AllOf(HasSubstr("exp-seed7"), HasSubstr("exp-seed8")));
  EXPECT_EQ(RunMacaw("report -o - " + folder).text, page.text);
  const Printed table = RunMacaw(absl::StrCat("compare --json ", folder, " ", file));
  ASSERT_EQ(table.exit, 0) << table.text;
  const Json rows = Json::parse(table.text)["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["runs"].size(), 2u) << "each run once";
  EXPECT_EQ(rows[0]["report"]["test_loss"]["mean"],
            JsonIn("exp-repeat.json")["metrics"]["test_loss"]["mean"]);
  EXPECT_THAT(RunMacaw("sweep show " + folder).text, ContainsRegex("seeds +7, 8\n"));
}

TEST_F(Repeats, TellsProgramsWhatASweepTells) {
  const Printed repeat = Repeat("--repeat 2 --json --jobs 1");
  ASSERT_EQ(repeat.exit, 0) << repeat.text;
  std::vector<std::string> events;
  Json last;
  for (const absl::string_view line : absl::StrSplit(repeat.text, '\n', absl::SkipEmpty())) {
    last = Json::parse(line);
    if (last["event"] != "said") events.push_back(last["event"]);
  }
  EXPECT_THAT(events, ElementsAre("begun", "run", "run", "table", "end"));
  EXPECT_EQ(last["code"], 0);
}

TEST_F(Repeats, ChecksWithoutARunAndBeginsAgainByForce) {
  const Printed check = Repeat("--repeat 2 --check");
  EXPECT_EQ(check.exit, 0) << check.text;
  EXPECT_FALSE(FileExists(folder_ / "exp-repeat"));
  EXPECT_EQ(Repeat("--repeat 2 --check --set local.lrr=1").exit, 2);
  ASSERT_EQ(Repeat("--repeat 2").exit, 0);
  const Printed again = Repeat("--repeat 2 --force --set local.lr=0.02");
  ASSERT_EQ(again.exit, 0) << again.text;
  EXPECT_EQ(JsonIn("exp-seed7/summary.json")["settings"]["local.lr"], 0.02);
  EXPECT_EQ(JsonIn("exp-repeat.json")["settings"]["local.lr"], 0.02);
}

TEST_F(Repeats, ThreeRulesAndThreeSeedsBecomeATableInOneCommand) {
  std::string files;
  for (const std::string rule : {"fedavg", "fedprox", "scaffold"}) {
    const Printed repeat = RunMacaw(absl::StrCat("simulate ", config_, " --repeat 3 --out ",
                                                 folder_ / rule, " --set algorithm.name=", rule));
    ASSERT_EQ(repeat.exit, 0) << repeat.text;
    absl::StrAppend(&files, " ", folder_ / rule, "-repeat.json");
  }
  const std::string csv = folder_ / "table.csv";
  const Printed table = RunMacaw("compare" + files + " --metric test_accuracy --csv " + csv);
  ASSERT_EQ(table.exit, 0) << table.text;
  EXPECT_THAT(table.text, ContainsRegex("algorithm.name +runs +seeds +test_accuracy\n"
                                        "fedavg +3 +7 to 9 +0.[0-9]+ ± 0.[0-9]+\n"
                                        "fedprox +3 +7 to 9 +0.[0-9]+ ± 0.[0-9]+\n"
                                        "scaffold +3 +7 to 9 +0.[0-9]+ ± 0.[0-9]+\n"));
  EXPECT_THAT(*ReadFile(csv), HasSubstr("algorithm.name,runs,seeds,failed,rounds,test_accuracy,"));
}

}  // namespace
}  // namespace macaw
