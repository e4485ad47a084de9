// Which runs `macaw compare` takes for one run, for one configuration, and what it says of ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/builtin.h"
#include "cli/results/alike.h"
#include "cli/results/compare.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RunResult Made(const std::string& folder, uint64_t seed, const std::string& model, double loss) {
  RunResult run{.folder = folder,
                .algorithm = "fedavg",
                .end = "finished",
                .seed = seed,
                .rounds = 10,
                .model_digest = model,
                .data_digest = "data"};
  run.final = {{"test_loss", loss}};
  return run;
}

ResultTable TableOf(const std::vector<RunResult>& runs, std::vector<std::string> metrics = {}) {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  auto table = Compare(runs, std::move(metrics), registry);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : ResultTable();
}

TEST(Alike, ACopyIsCountedOnceInAnyOrder) {
  const RunResult first = Made("a", 1, "one", 0.5), other = Made("b", 1, "two", 0.7),
                  copy = Made("c", 1, "two", 0.7);
  for (const auto& runs : {std::vector{first, other, copy}, std::vector{other, first, copy},
                           std::vector{other, copy, first}}) {
    const ResultTable table = TableOf(runs);
    ASSERT_EQ(table.rows.size(), 1u);
    EXPECT_EQ(table.rows[0].runs.size(), 2u);
    EXPECT_THAT(absl::StrJoin(table.notes, "\n"),
                AllOf(HasSubstr("are the same run (seed 1): counted once."),
                      HasSubstr("not the same model: other machines or versions")));
  }
}

TEST(Alike, AnInterruptedRunIsNoOtherMachine) {
  const RunResult whole = Made("whole", 1, "one", 0.5);
  RunResult cut = Made("cut", 1, "two", 0.7);
  cut.end = "interrupted";
  cut.rounds = 3;
  for (const auto& runs : {std::vector{whole, cut}, std::vector{cut, whole}}) {
    EXPECT_THAT(TableOf(runs).notes[0],
                AllOf(HasSubstr("not the same model: cut was interrupted after round 3. Both are"),
                      Not(HasSubstr("machines"))));
  }
}

TEST(Alike, AStoppedRunSaysWhy) {
  RunResult run = Made("a", 1, "one", 0.5);
  run.end = "stopped";
  EXPECT_THAT(NotesOn({run}), ElementsAre("a was stopped after round 10."));
  run.reason = "the user has seen enough";
  EXPECT_THAT(NotesOn({run}),
              ElementsAre("a was stopped after round 10: the user has seen enough."));
}

// A program's own functions are in no setting: only their digest tells them apart.
TEST(Alike, RunsOfOtherProgramsAreOtherConfigurations) {
  std::vector<RunResult> runs = {Made("a", 1, "1", 0.5), Made("b", 2, "2", 0.6),
                                 Made("c", 1, "3", 0.7), Made("d", 1, "4", 0.8)};
  EXPECT_EQ(TableOf(runs).rows.size(), 1u) << "nothing tells them apart";
  runs[0].inputs = runs[1].inputs = {{"program", "0123456789abcdef"}};
  EXPECT_EQ(TableOf({runs[0], runs[1]}).rows.size(), 1u) << "two seeds";
  runs[2].inputs = {{"program", "fedcba9876543210"}};
  const ResultTable table = TableOf(runs);
  EXPECT_THAT(table.keys, ElementsAre("program"));
  ASSERT_EQ(table.rows.size(), 3u) << "and the run without a program";
  EXPECT_EQ(table.rows[0].runs.size(), 2u);
  EXPECT_THAT(table.rows[0].settings, ElementsAre("(01234567)"));
  EXPECT_THAT(table.rows[1].settings, ElementsAre("(fedcba98)"));
  EXPECT_THAT(table.rows[2].settings, ElementsAre(nullptr));
}

// The digests of a list's files stand one after another; the page reads settings as JSON.
TEST(Alike, ListsOfFilesAreToldApartByAnyOfThem) {
  std::vector<RunResult> runs = {Made("a", 1, "1", 0.5), Made("b", 1, "2", 0.6)};
  for (RunResult& run : runs) run.settings = {{"data.more", R"(["x.csv","y.csv"])"}};
  runs[0].inputs = {{"data.more", "0123456789abcdef0000"}};
  runs[1].inputs = {{"data.more", "0123456789abcdef1111"}};
  TellApart(runs);
  EXPECT_EQ(nlohmann::json::parse(runs[0].settings["data.more"]),
            R"(["x.csv","y.csv"] (0123456789abcdef0000))");
  EXPECT_NE(runs[0].settings, runs[1].settings);
}

// Summaries come from others, too: eight bytes of a digest may end within a character.
TEST(Alike, DigestsThatAreNoneAreShownAsText) {
  std::vector<RunResult> runs = {Made("a", 1, "1", 0.5), Made("b", 1, "2", 0.6)};
  runs[0].inputs = {{"program", "1234567ä"}};
  runs[1].inputs = {{"program", "abcdefgä"}};
  TellApart(runs);
  EXPECT_EQ(nlohmann::json::parse(runs[0].settings["program"]), "(1234567\uFFFD)");
  EXPECT_EQ(nlohmann::json::parse(runs[1].settings["program"]), "(abcdefg\uFFFD)");
}

TEST(Alike, AMetricOfADivergedRunIsThereWithoutAValue) {
  const testing_support::TemporaryFolder folder;
  folder.Write("run/summary.json",
               R"({"algorithm": "fedavg", "settings": {}, "seed": 1, "end": "finished",
                   "rounds": 4, "final": {"test_loss": null, "test_accuracy": 0}})");
  const auto read = ReadRuns({folder / "run"});
  ASSERT_TRUE(read.ok()) << read.status();
  for (const std::vector<std::string>& metrics :
       {std::vector<std::string>{"test_loss"}, std::vector<std::string>{}}) {
    const ResultTable table = TableOf(read->runs, metrics);
    ASSERT_THAT(table.metrics, testing::Contains("test_loss"));
    EXPECT_THAT(TableText(table), testing::ContainsRegex("test_loss +-\n"));
    EXPECT_THAT(table.notes, ElementsAre(folder / "run" + ": test_loss was no number in the end."));
  }
  // Beside a seed with a value there is no mean.
  const ResultTable both = TableOf({read->runs[0], Made("b", 2, "x", 0.5)}, {"test_loss"});
  EXPECT_EQ(both.rows[0].values[0].n, 0u);
  EXPECT_THAT(TableOf({Made("b", 2, "x", 0.5)}, {"test_loss"}).notes, IsEmpty());
}

}  // namespace
}  // namespace macaw::cli
