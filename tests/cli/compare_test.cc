#include "cli/results/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "algorithms/builtin.h"
#include "cli/results/run_paths.h"
#include "cli/results/text.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

algorithms::Registry Builtins() {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  return registry;
}

RunResult Done(const std::string& algorithm, uint64_t seed, double accuracy,
               std::map<std::string, std::string> settings = {}) {
  RunResult run{.folder = absl::StrCat("runs/", algorithm, "-", seed),
                .algorithm = algorithm,
                .end = "finished",
                .settings = std::move(settings),
                .seed = seed,
                .rounds = 10,
                .model_digest = absl::StrCat(algorithm, seed, accuracy),
                .data_digest = "data"};
  run.final = {{"test_accuracy", accuracy}, {"train_loss", 0.25}};
  run.bests["test_accuracy"] = {.value = accuracy, .round = 10};
  return run;
}

ResultTable Compared(const std::vector<RunResult>& runs, std::vector<std::string> metrics = {}) {
  const auto comparison = Compare(runs, std::move(metrics), Builtins());
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return *comparison;
}

TEST(Compare, ThreeRulesAndThreeSeedsAreThreeRowsWithMeanAndDeviation) {
  std::vector<RunResult> runs;
  for (const uint64_t seed : {1, 2, 3}) {
    runs.push_back(Done("fedavg", seed, 0.9 + 0.01 * static_cast<double>(seed)));
    runs.push_back(Done("fedprox", seed, 0.8, {{"algorithm.fedprox.mu", "0.5"}}));
    runs.push_back(Done("scaffold", seed, 0.7));
  }
  EXPECT_EQ(
      TableText(Compared(runs)),
      "algorithm.name  algorithm.fedprox.mu  runs  seeds   test_accuracy    train_loss\n"
      "fedavg          -                     3     1 to 3  0.9200 ± 0.0100  0.2500 ± 0.0000\n"
      "fedprox         0.5                   3     1 to 3  0.8000 ± 0.0000  0.2500 ± 0.0000\n"
      "scaffold        -                     3     1 to 3  0.7000 ± 0.0000  0.2500 ± 0.0000\n");
}

TEST(Compare, ShowsTheDefaultOfAKeyThatOnlySomeRunsGive) {
  const ResultTable comparison = Compared(
      {Done("fedavg", 1, 0.5), Done("fedavg", 1, 0.6, {{"local.lr", "0.05"}})}, {"test_accuracy"});
  EXPECT_THAT(comparison.keys, ElementsAre("local.lr"));
  ASSERT_EQ(comparison.rows.size(), 2u);
  EXPECT_THAT(comparison.rows[0].settings, ElementsAre(0.1));
  EXPECT_THAT(comparison.rows[1].settings, ElementsAre(0.05));
}

TEST(Compare, ShowsNoKeysOfRowsThatAFleetsServerDoesNotKnow) {
  const ResultTable comparison =
      Compared({Done("fedavg", 1, 0.5),
                Done("fedavg", 1, 0.6,
                     {{"data.source", "\"synthetic\""}, {"data.synthetic.clients", "40"}})},
               {"test_accuracy"});
  EXPECT_THAT(comparison.keys, ElementsAre("data.source", "data.synthetic.clients"));
  ASSERT_EQ(comparison.rows.size(), 2u);
  EXPECT_THAT(comparison.rows[0].settings, ElementsAre(nullptr, nullptr));
  EXPECT_THAT(comparison.rows[1].settings, ElementsAre("synthetic", 40));
}

TEST(Compare, SaysWhatAllRunsHaveAlike) {
  const std::map<std::string, std::string> lr = {{"local.lr", "0.05"}};
  EXPECT_THAT(TableText(Compared({Done("fedavg", 1, 0.5, lr), Done("fedavg", 2, 0.6, lr)})),
              HasSubstr("the same in all: algorithm.name fedavg, local.lr 0.05\n"));
}

TEST(Compare, ASeedThatIsFixedIsFixedAlsoInTheRunWithThatSeed) {
  const std::map<std::string, std::string> one = {{"partition.seed", "1"}},
                                           two = {{"partition.seed", "2"}};
  // A summary leaves out a seed that equals the run's.
  const ResultTable table = Compared({Done("fedavg", 1, 0.5), Done("fedavg", 2, 0.6, one),
                                      Done("fedavg", 1, 0.7, two), Done("fedavg", 2, 0.8)},
                                     {"test_accuracy"});
  EXPECT_THAT(table.keys, ElementsAre("partition.seed"));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.rows[0].settings, ElementsAre(1));
  EXPECT_THAT(table.rows[1].settings, ElementsAre(2));
  for (const TableRow& row : table.rows) EXPECT_EQ(row.runs.size(), 2u);
}

TEST(Compare, RunsWhoseSeedFollowsStayTogetherBesideThoseWithAFixedOne) {
  const std::map<std::string, std::string> one = {{"partition.seed", "1"}};
  const ResultTable table = Compared({Done("fedavg", 1, 0.5), Done("fedavg", 1, 0.5),
                                      Done("fedavg", 2, 0.6, one), Done("fedavg", 2, 0.8)},
                                     {"test_accuracy"});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.rows[0].settings, ElementsAre(1));
  for (const TableRow& row : table.rows) EXPECT_EQ(row.runs.size(), 2u);
}

TEST(Compare, FilesOfOneNameAndOtherContentsAreOtherConfigurations) {
  const std::map<std::string, std::string> path = {{"data.path", "\"x.csv\""}};
  std::vector<RunResult> runs = {Done("fedavg", 1, 0.5, path), Done("fedavg", 2, 0.6, path),
                                 Done("fedavg", 1, 0.7, path)};
  EXPECT_EQ(Compared(runs).rows.size(), 1u) << "older summaries have no digests";
  runs[0].inputs = runs[1].inputs = {{"data.path", "0123456789abcdef"}};
  runs[2].inputs = {{"data.path", "fedcba9876543210"}};
  const ResultTable table = Compared(runs);
  EXPECT_THAT(table.keys, ElementsAre("data.path"));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.rows[0].settings, ElementsAre("x.csv (01234567)"));
  EXPECT_THAT(table.rows[1].settings, ElementsAre("x.csv (fedcba98)"));
}

TEST(Compare, CountsARunThatIsGivenTwiceOnce) {
  const RunResult run = Done("fedavg", 1, 0.5);
  const ResultTable comparison = Compared({run, run});
  EXPECT_EQ(comparison.rows[0].runs.size(), 1u);
  EXPECT_THAT(comparison.notes, ElementsAre(HasSubstr("counted once")));
}

TEST(Compare, SaysWhenEqualSettingsAndSeedsGaveDifferentResults) {
  RunResult other = Done("fedavg", 1, 0.6);
  EXPECT_THAT(Compared({Done("fedavg", 1, 0.5), other}).notes,
              ElementsAre(HasSubstr("not the same model")));
  other.data_digest = "other data";
  EXPECT_THAT(Compared({Done("fedavg", 1, 0.5), other}).notes,
              ElementsAre(HasSubstr("not the same data")));
}

TEST(Compare, SaysWhichRunsDidNotReachTheirEndOrFellFarUnderTheirBest) {
  RunResult interrupted = Done("fedavg", 1, 0.5);
  interrupted.end = "interrupted";
  RunResult unstable = Done("fedavg", 2, 0.1, {});
  unstable.bests["test_accuracy"] = {.value = 0.9, .round = 7};
  const ResultTable comparison = Compared({interrupted, unstable});
  EXPECT_THAT(comparison.notes, ElementsAre("runs/fedavg-1 was interrupted after round 10.",
                                            HasSubstr("far under its best of 0.9000 (round 7)")));
}

TEST(Compare, TakesTheMetricsAskedFor) {
  RunResult run = Done("fedavg", 1, 0.5);
  run.rounds_to["0.5"] = 4;
  RunResult slow = Done("scaffold", 1, 0.4);
  const ResultTable comparison =
      Compared({run, slow}, {"rounds_to_0.5", "best_test_accuracy", "seconds"});
  EXPECT_EQ(comparison.rows[0].values[0].mean, 4);
  EXPECT_EQ(comparison.rows[1].values[0].n, 0u) << "never reached";
  EXPECT_EQ(comparison.rows[0].values[1].mean, 0.5);
  EXPECT_THAT(TableText(comparison), HasSubstr("scaffold        1     1      not reached  "));
}

TEST(Compare, ATargetThatARunMissedIsMissingForThatRunAlone) {
  std::vector<RunResult> runs;
  for (const uint64_t seed : {1, 2, 3}) {
    runs.push_back(Done("fedavg", seed, 0.5));
    if (seed < 3) runs.back().rounds_to["0.5"] = 3 + static_cast<double>(seed);
  }
  const ResultTable table = Compared(runs, {"rounds_to_0.5", "test_accuracy", "rounds_to_0.9"});
  EXPECT_EQ(table.rows[0].values[0].n, 2u);
  EXPECT_EQ(table.rows[0].values[0].mean, 4.5);
  EXPECT_EQ(table.rows[0].values[1].n, 3u);
  EXPECT_EQ(table.rows[0].values[2].n, 0u);
  const std::string text = TableText(table);
  EXPECT_THAT(text, HasSubstr("(2 of 3)\n"));
  EXPECT_THAT(text, HasSubstr("rounds_to_0.9  not reached\n"));
  EXPECT_THAT(text, HasSubstr("rounds_to_0.5: 2 of 3 runs reached it."));
  EXPECT_THAT(text, HasSubstr("No run reached an accuracy of 0.9"));
  EXPECT_THAT(TableCsv(table), HasSubstr("rounds_to_0.5,rounds_to_0.5_reached,"));
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["rows"][0]["report"]["rounds_to_0.5"]["reached"], 2);
}

TEST(Compare, SaysWhereTargetsAreOfDifferentAccuracies) {
  RunResult one = Done("fedavg", 1, 0.6), other = Done("local", 1, 0.6);
  for (RunResult* run : {&one, &other}) run->rounds_to["0.5"] = 4;
  one.best_metric = "test_accuracy";
  other.best_metric = "clients_test_accuracy";
  EXPECT_THAT(TableText(Compared({one, other}, {"rounds_to_0.5"})),
              HasSubstr("clients_test_accuracy in 1 row; test_accuracy in 1 row."));
  EXPECT_THAT(TableText(Compared({one, other}, {"test_accuracy"})),
              testing::Not(HasSubstr("clients_test_accuracy in")));
  other.best_metric = "train_loss";  // it has no accuracy, so it reaches none
  EXPECT_THAT(TableText(Compared({one, other}, {"rounds_to_0.5"})),
              testing::Not(HasSubstr("in 1 row")));
}

TEST(Compare, ATargetThatRunsCannotHaveIsAnUnknownMetric) {
  for (const char* metric : {"rounds_to_0.55", "virtual_seconds_to_0.9", "bytes_up_to_0.9"}) {
    const auto refused = Compare({Done("fedavg", 1, 0.5)}, {metric}, Builtins());
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no run has the metric"));
  }
  RunResult timed = Done("fedavg", 1, 0.5);
  timed.costs["total_virtual_seconds"] = 60;
  EXPECT_EQ(Compared({timed}, {"virtual_seconds_to_0.9"}).rows[0].values[0].n, 0u);
}

TEST(Compare, NamesTheMetricsThatThereAreWhereOneIsUnknown) {
  const auto refused = Compare({Done("fedavg", 1, 0.5)}, {"test_acuracy"}, Builtins());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("\"test_acuracy\"; did you mean test_accuracy?"));
}

TEST(TableCsv, HasMeanAndDeviationInColumnsOfTheirOwnAndQuotesCommas) {
  const std::vector<RunResult> runs = {
      Done("fedavg", 1, 0.25, {{"model.layers", R"(["flatten","linear 10"])"}}),
      Done("fedavg", 2, 0.75, {{"model.layers", R"(["flatten","linear 10"])"}}),
      Done("fedavg", 1, 0.5)};
  const Estimate both = EstimateOf({0.25, 0.75});
  EXPECT_EQ(TableCsv(Compared(runs, {"test_accuracy"})),
            absl::StrFormat("model.layers,runs,seeds,failed,rounds,test_accuracy,test_accuracy_std,"
                            "test_accuracy_low,test_accuracy_high\n"
                            "\"[\"\"flatten\"\",\"\"linear 10\"\"]\",2,1 2,0,10,0.5,"
                            "0.35355339059327379,%.17g,%.17g\n"
                            ",1,1,0,10,0.5,,,\n",
                            both.interval->low, both.interval->high));
}

TEST(ReadRuns, TakesFoldersAndTheFileOfARepeatAndNamesWhatIsMissing) {
  const testing_support::TemporaryFolder folder;
  const auto summary = [&](const std::string& name, const std::string& text) {
    folder.Write(name + "/summary.json", text);
    return folder / name;
  };
  summary("x-seed1", R"({"algorithm": "fedavg", "settings": {}, "seed": 1})");
  summary("x-seed2", R"({"algorithm": "fedavg", "settings": {}, "seed": 2})");
  folder.Write("x-repeat.json",
               R"({"runs": [{"folder": "runs/x-seed1"}, {"folder": "runs/x-seed2"}]})");
  const auto runs = ReadRuns({folder / "x-repeat.json", folder / "x-seed1/"});
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->runs.size(), 2u) << "each run once";
  EXPECT_EQ(runs->runs[0].folder, folder / "x-seed1");
  EXPECT_EQ(runs->runs[1].seed, 2u);
  EXPECT_THAT(runs->left_out, IsEmpty());

  // A run of a finished repeat may have been removed.
  folder.Write("x-repeat.json", R"({"runs": [{"folder": "runs/x-seed1", "end": "finished"},
                                            {"folder": "runs/x-seed3", "end": "finished"}]})");
  const auto removed = ReadRuns({folder / "x-repeat.json"});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->runs.size(), 1u);
  EXPECT_THAT(
      removed->left_out,
      ElementsAre(HasSubstr("1 of 2 runs is left out, because its folder is gone: x-seed3.")));
  EXPECT_THAT(*RunFolders({folder / "x-repeat.json"}), ElementsAre(folder / "x-seed1"));

  folder.Write("s/sweep.json", "{}");
  for (const char* file :
       {"s/jobs/001-seed1.toml", "s/jobs/002-seed1.toml", "s/runs/001-seed1/config.toml"})
    folder.Write(file, "");
  summary("s/runs/001-seed1", R"({"algorithm": "fedavg", "settings": {}, "seed": 1})");
  const auto of_sweep = ReadRuns({folder / "s"});
  ASSERT_TRUE(of_sweep.ok()) << of_sweep.status();
  ASSERT_EQ(of_sweep->runs.size(), 1u);
  EXPECT_EQ(of_sweep->runs.front().folder, folder / "s/runs/001-seed1");
  EXPECT_THAT(of_sweep->left_out,
              ElementsAre(folder / "s" + ": 1 of 2 runs failed or is not over, and is left out: "
                                         "002-seed1."))
      << "it has not begun";

  folder.Write("open/config.toml", "");
  EXPECT_THAT(std::string(ReadRuns({folder / "open"}).status().message()),
              HasSubstr("open has no summary.json: the run is not over"));
  EXPECT_THAT(std::string(ReadRuns({folder / "nope"}).status().message()),
              HasSubstr("nope holds no run that can be read: No such file"));
  const std::string old = summary("old", R"({"rounds": 3})");
  EXPECT_THAT(std::string(ReadRuns({old}).status().message()), HasSubstr("older version"));
}

TEST(ReadRuns, TakesNoSummaryThatIsOlderThanTheRows) {
  const testing_support::TemporaryFolder folder;
  for (const char* run : {"s/runs/001-seed1", "s/runs/001-seed2"}) {
    folder.Write(absl::StrCat(run, "/config.toml"), "");
    folder.Write(absl::StrCat(run, "/summary.json"),
                 R"({"algorithm": "fedavg", "settings": {}, "seed": 1, "rounds": 1})");
    folder.Write(absl::StrCat(run, "/metrics.jsonl"), "{\"round\":1}\n");
  }
  folder.Write("s/sweep.json", "{}");
  for (const char* job : {"001-seed1", "001-seed2"})
    folder.Write(absl::StrCat("s/jobs/", job, ".toml"), "");
  EXPECT_EQ(ReadRuns({folder / "s"})->runs.size(), 2u);
  // It got more rounds.
  folder.Write("s/runs/001-seed2/metrics.jsonl", "{\"round\":1}\n{\"round\":2}\n");
  EXPECT_THAT(
      std::string(ReadRuns({folder / "s/runs/001-seed2"}).status().message()),
      testing::AllOf(HasSubstr("of round 1 and rows up to round 2"), HasSubstr("not over")));
  const auto read = ReadRuns({folder / "s"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->runs.size(), 1u);
  EXPECT_THAT(read->left_out, ElementsAre(HasSubstr("left out: 001-seed2.")));
}

TEST(ReadRuns, LeavesOutWhatFailedInASweepAndRefusesItByItself) {
  const testing_support::TemporaryFolder folder;
  folder.Write("s/sweep.json", "{}");
  for (const char* run : {"001-seed1", "002-seed1", "002-seed2", "003-seed1", "003-seed2"}) {
    folder.Write(absl::StrCat("s/jobs/", run, ".toml"), "");
    folder.Write(absl::StrCat("s/runs/", run, "/config.toml"), "");
  }
  EXPECT_THAT(std::string(ReadRuns({folder / "s"}).status().message()),
              HasSubstr("has no run with a result yet"));
  folder.Write("s/runs/001-seed1/summary.json",
               R"({"algorithm": "fedavg", "settings": {}, "seed": 1})");
  const auto read = ReadRuns({folder / "s"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->runs.size(), 1u);
  EXPECT_THAT(read->left_out,
              ElementsAre(HasSubstr("4 of 5 runs failed or are not over, and are left out: "
                                    "002-seed1, 002-seed2, 003-seed1 and 1 more.")));
  EXPECT_THAT(std::string(ReadRuns({folder / "s", folder / "s/runs/002-seed1"}).status().message()),
              HasSubstr("002-seed1 has no summary.json: the run is not over"));

  folder.Write("r-seed1/summary.json", R"({"algorithm": "fedavg", "settings": {}, "seed": 1})");
  folder.Write("r-seed2/config.toml", "");
  folder.Write("r-repeat.json",
               R"({"runs": [{"folder": "r-seed1", "end": "finished"}, {"folder": "r-seed2"}]})");
  const auto repeat = ReadRuns({folder / "r-repeat.json"});
  ASSERT_TRUE(repeat.ok()) << repeat.status();
  EXPECT_EQ(repeat->runs.size(), 1u);
  EXPECT_THAT(repeat->left_out, ElementsAre(HasSubstr("left out: r-seed2.")));
}

// A run whose validation rows chose round 6.
RunResult Validated(const std::string& algorithm, uint64_t seed, double validation, double test) {
  RunResult run = Done(algorithm, seed, 0.5);
  run.bests["val_accuracy"] = {
      .value = validation, .round = 6, .report = {{"test_accuracy", test}}};
  run.best_metric = "val_accuracy";
  return run;
}

TEST(Compare, ShowsTestValuesInTheRoundsThatValidationRowsChoose) {
  const std::vector<RunResult> runs = {Validated("fedavg", 1, 0.8, 0.75),
                                       Validated("fedavg", 2, 0.9, 0.85),
                                       Done("scaffold", 1, 0.4)};  // of an older version
  const auto comparison = Compare(runs, {}, Builtins(), {.select = "val_accuracy"});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(comparison->metrics,
              ElementsAre("best_val_accuracy", "test_accuracy_at_best_val_accuracy"));
  EXPECT_DOUBLE_EQ(comparison->rows[0].values[1].mean, 0.8);
  EXPECT_EQ(comparison->rows[1].values[1].n, 0u);
  EXPECT_THAT(comparison->notes, IsEmpty());
  EXPECT_THAT(
      std::string(Compare(runs, {}, Builtins(), {.select = "val_acuracy"}).status().message()),
      HasSubstr("did you mean val_accuracy?"));
}

TEST(Compare, ASectionThatARunDoesNotUseHasNoValuesAndASeedFollowsTheRuns) {
  const std::map<std::string, std::string> plain = {{"data.source", "\"synthetic\""}};
  std::map<std::string, std::string> used = plain;
  used["privacy.mechanism"] = "\"gaussian\"";
  used["privacy.noise"] = "2.0";
  used["partition.seed"] = "3";
  const ResultTable comparison =
      Compared({Done("fedavg", 1, 0.5, plain), Done("fedavg", 1, 0.6, used)}, {"test_accuracy"});
  EXPECT_THAT(comparison.keys, ElementsAre("partition.seed", "privacy.mechanism", "privacy.noise"));
  EXPECT_THAT(comparison.rows[0].settings, ElementsAre("run", "none", nullptr));
  EXPECT_THAT(comparison.rows[1].settings, ElementsAre(3, "gaussian", 2.0));
}

TEST(Compare, AValueIsAsGoodAsItsOwnNameSays) {
  EXPECT_TRUE(HigherMetricIsBetter("test_accuracy_at_best_val_loss"));
  EXPECT_FALSE(HigherMetricIsBetter("test_loss_at_best_val_accuracy"));
  EXPECT_FALSE(HigherMetricIsBetter("best_val_loss"));
  EXPECT_FALSE(HigherMetricIsBetter("rounds_to_0.9"));
}

TEST(Compare, SaysThatTestRowsChoose) {
  EXPECT_THAT(Compared({Done("fedavg", 1, 0.5)}, {"best_test_accuracy"}).notes,
              ElementsAre(HasSubstr("is of test rows")));
}

TEST(Compare, PairsEachRowWithTheBestAndCorrectsForTheirNumber) {
  std::vector<RunResult> runs;
  for (const uint64_t seed : {1, 2, 3}) {
    const double noise = 0.01 * static_cast<double>(seed * seed);
    runs.push_back(Done("fedavg", seed, 0.80 + noise));
    runs.push_back(Done("fedprox", seed, 0.90 - noise));
    runs.push_back(Done("scaffold", seed, 0.60 + 2 * noise));
  }
  const auto comparison = Compare(runs, {"test_accuracy"}, Builtins(), {.paired = "test_accuracy"});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  std::vector<std::optional<double>> p;
  for (const TableRow& row : comparison->rows)
    p.push_back(row.against_best.has_value() ? row.against_best->p : std::nullopt);
  ASSERT_TRUE(p[0].has_value() && !p[1].has_value() && p[2].has_value()) << "fedavg is the best";
  const std::vector<std::optional<double>> holm = HolmAdjusted(p);
  EXPECT_EQ(comparison->rows[0].p_holm, holm[0]);
  EXPECT_EQ(comparison->rows[2].p_holm, holm[2]);
  EXPECT_THAT(TableText(*comparison), HasSubstr("p, Holm"));
  EXPECT_THAT(TableCsv(*comparison),
              HasSubstr("minus_best,minus_best_low,minus_best_high,p,p_holm"));
  const auto json = nlohmann::json::parse(TableJson(*comparison));
  EXPECT_EQ(json["rows"][2]["values"]["algorithm.name"], "scaffold");
  EXPECT_EQ(json["rows"][0]["runs"][1]["folder"], "runs/fedavg-2");
  EXPECT_TRUE(json["rows"][0]["against_best"].is_null() !=
              json["rows"][1]["against_best"].is_null());
}

TEST(Compare, SaysWhyNothingIsPaired) {
  const auto notes = [](const std::vector<RunResult>& runs) {
    const auto comparison = Compare(runs, {"train_loss"}, Builtins(), {.paired = "test_accuracy"});
    EXPECT_TRUE(comparison.ok()) << comparison.status();
    return absl::StrJoin(comparison->notes, "\n");
  };
  EXPECT_THAT(notes({Done("fedavg", 1, 0.8), Done("fedprox", 1, 0.7)}),
              HasSubstr("--paired compared nothing by test_accuracy: each row has one run"));
  EXPECT_THAT(notes({Done("fedavg", 1, 0.8), Done("fedavg", 2, 0.7)}), HasSubstr("one row"));
  EXPECT_THAT(notes({Done("fedavg", 1, 0.8), Done("fedavg", 2, 0.9), Done("fedprox", 2, 0.7),
                     Done("fedprox", 3, 0.7)}),
              HasSubstr("two or more seeds in common with the best one"));
  EXPECT_THAT(notes({Done("fedavg", 1, 0.8), Done("fedavg", 2, 0.9), Done("fedprox", 1, 0.7),
                     Done("fedprox", 2, 0.7)}),
              testing::Not(HasSubstr("compared nothing")));
}

TEST(Compare, OneConfigurationHasALineAColumn) {
  EXPECT_EQ(TableText(Compared({Done("fedavg", 1, 0.5), Done("fedavg", 2, 0.75)})),
            "runs           2\n"
            "seeds          1, 2\n"
            "test_accuracy  0.6250 ± 0.1768\n"
            "train_loss     0.2500 ± 0.0000\n"
            "the same in all: algorithm.name fedavg\n");
}

TEST(SeedsText, JoinsNeighbours) {
  EXPECT_EQ(SeedsText({5}), "5");
  EXPECT_EQ(SeedsText({1, 2, 3, 7, 8}), "1 to 3, 7, 8");
}

}  // namespace
}  // namespace macaw::cli
