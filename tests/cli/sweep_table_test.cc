// Who goes on in a halving, and what the table says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/results/table.h"
#include "cli/sweep/halving.h"
#include "cli/sweep/progress.h"
#include "cli/sweep/table.h"
#include "testing/fake_clock.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::FakeClock;
using Results = std::map<std::string, JobResult>;

// Configurations 001, 002, … with local.lr 0.1, 0.2, 0.25, …, over the seeds 1 and 2.
SweepPlan PlanOf(size_t configurations, std::vector<uint32_t> rungs = {}) {
  SweepPlan plan;
  plan.metric = "test_accuracy";
  plan.keys = {"local.lr"};
  plan.seeds = {1, 2};
  plan.factor = rungs.empty() ? 0 : 2;
  plan.rungs = std::move(rungs);
  const double rates[] = {0.1, 0.2, 0.25, 0.5, 1.0};
  for (size_t i = 0; i < configurations; ++i) {
    Configuration configuration;
    configuration.name = absl::StrCat("00", i + 1);
    configuration.values = {rates[i]};
    configuration.rounds = 10;
    plan.configurations.push_back(std::move(configuration));
  }
  return plan;
}

// Nothing is over yet.
Results NoResults(const SweepPlan& plan) {
  Results results;
  for (const Configuration& configuration : plan.configurations) {
    for (const uint64_t seed : plan.seeds) results[JobName(configuration, seed)];
  }
  return results;
}

ResultTable Made(const SweepPlan& plan, const Results& results) {
  return MakeTable(plan, results, SweepFolder("sweeps/a"));
}
std::string BestOf(const ResultTable& table) {
  return table.best.has_value() ? table.rows[*table.best].name : "";
}
size_t Open(const TableRow& row) {
  return static_cast<size_t>(std::ranges::count_if(row.runs, [](const TableRun& run) {
    return run.goes_on || run.state == TableRun::State::kOpen;
  }));
}

void Put(Results& results, const std::string& configuration, uint32_t rounds, double one,
         double two) {
  results.at(configuration + "-seed1").rungs[rounds]["test_accuracy"] = one;
  results.at(configuration + "-seed2").rungs[rounds]["test_accuracy"] = two;
}

TEST(SweepTable, TheBestMeanComesFirstAndOthersAreComparedWithIt) {
  const SweepPlan plan = PlanOf(3);
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.50, 0.60);
  Put(results, "002", 10, 0.80, 0.90);
  Put(results, "003", 10, 0.70, 0.82);
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(BestOf(table), "002");
  EXPECT_EQ(table.Count(TableRun::State::kDone), 6u);
  EXPECT_THAT(
      TableText(table),
      StartsWith("configuration  local.lr  runs  seeds  test_accuracy    95 % interval      "
                 "minus the best  95 % interval      p       p, Holm\n"
                 "002            0.2       2     1, 2   0.8500 ± 0.0707  0.2147 to 1.4853   "
                 "-               -                  -       -\n"
                 "003            0.25      2     1, 2   0.7600 ± 0.0849  -0.0024 to 1.5224  "
                 "-0.0900         -0.2171 to 0.0371  0.0704  0.0704\n"
                 "001            0.1       2     1, 2   0.5500 ± 0.0707  -0.0853 to 1.1853  "
                 "-0.3000         -                  -       -\n"));
  EXPECT_THAT(TableText(table), HasSubstr("by the same number with every seed"));
  EXPECT_THAT(TableCsv(table),
              AllOf(HasSubstr("configuration,local.lr,runs,seeds,failed,rounds,test_accuracy,"
                              "test_accuracy_std,test_accuracy_low,test_accuracy_high,minus_best,"),
                    HasSubstr("\n002,0.2,2,1 2,0,10,0.8"), HasSubstr(",,,,,\n003,")));
}

TEST(SweepTable, ReportsTestValuesBesideWhatValidationRowsChoose) {
  SweepPlan plan = PlanOf(2);
  plan.metric = "val_accuracy";
  plan.report = {"test_accuracy"};
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.9, 0.9);  // better on the test rows, which do not choose
  Put(results, "002", 10, 0.7, 0.8);
  for (const char* seed : {"1", "2"}) {
    results.at(absl::StrCat("001-seed", seed)).rungs[10]["val_accuracy"] = 0.5;
    results.at(absl::StrCat("002-seed", seed)).rungs[10]["val_accuracy"] = 0.6;
  }
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(BestOf(table), "002");
  EXPECT_DOUBLE_EQ(table.rows[0].values.at(1).mean, 0.75);
  const std::string text = TableText(table);
  EXPECT_THAT(text, AllOf(HasSubstr("95 % interval     test_accuracy"),
                          HasSubstr("0.7500 ± 0.0707"), Not(HasSubstr("warning"))));
  EXPECT_THAT(TableCsv(table), HasSubstr(",test_accuracy,test_accuracy_std,"));
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["rows_of_metric"], "validation");
  EXPECT_EQ(json["rows"][0]["report"]["test_accuracy"]["mean"], 0.75);
  const auto again = ParsePlan(JsonOf(plan), "sweep.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->report, ElementsAre("test_accuracy"));
}

TEST(SweepTable, WarnsWhereTestRowsChoose) {
  const SweepPlan plan = PlanOf(2);
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.5, 0.6);
  Put(results, "002", 10, 0.8, 0.9);
  const std::string text = TableText(Made(plan, results));
  EXPECT_THAT(text, AllOf(HasSubstr("warning: "), HasSubstr("data.central_val_fraction")));
}

TEST(SweepTable, HasHolmsCorrection) {
  const SweepPlan plan = PlanOf(3);
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.50, 0.61);
  Put(results, "002", 10, 0.80, 0.90);
  Put(results, "003", 10, 0.70, 0.82);
  const ResultTable table = Made(plan, results);
  const double p = *table.rows[1].against_best->p, q = *table.rows[2].against_best->p;
  EXPECT_DOUBLE_EQ(*table.rows[2].p_holm, 2 * std::min(p, q));
  EXPECT_DOUBLE_EQ(*table.rows[1].p_holm, std::max(std::max(p, q), 2 * std::min(p, q)));
  EXPECT_FALSE(table.rows[0].p_holm.has_value());
}

TEST(SweepTable, OfAnOlderSweepHasNothingToReport) {
  const auto plan = ParsePlan(
      R"({"metric":"test_loss","mode":"min","keys":[],"seeds":[1],"rungs":[],"factor":0,
          "configurations":[]})",
      "sweep.json");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->report, IsEmpty());
}

TEST(SweepTable, LessIsBetterOfALoss) {
  SweepPlan plan = PlanOf(2);
  plan.higher = false;
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.5, 0.6);
  Put(results, "002", 10, 0.8, 0.9);
  EXPECT_EQ(BestOf(Made(plan, results)), "001");
}

TEST(SweepTable, AConfigurationThatFailedWithASeedIsNotTheBestWhileAnotherIsWhole) {
  const SweepPlan plan = PlanOf(3);
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.5, 0.6);
  Put(results, "002", 10, 0.9, std::nan(""));
  results.at("003-seed1").failed = results.at("003-seed2").failed = true;
  results.at("003-seed1").why = "it diverged";
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(BestOf(table), "001");
  EXPECT_EQ(table.Count(TableRun::State::kFailed), 3u);
  EXPECT_EQ(table.Count(TableRun::State::kDone), 3u);
  EXPECT_EQ(table.rows[1].against_best.value().n, 1u) << "over the seed that both have";
  EXPECT_THAT(
      TableText(table),
      AllOf(HasSubstr("1 of 2"), HasSubstr("0 of 2"), HasSubstr("failed: 003-seed1: it diverged"),
            HasSubstr("failed: 002-seed2: its test_accuracy is not a finite number")));
}

TEST(SweepTable, ShowsWhatIsThereWhileTheSweepGoesOn) {
  const SweepPlan plan = PlanOf(2);
  Results results = NoResults(plan);
  EXPECT_EQ(Made(plan, results).best, std::nullopt);
  results.at("002-seed2").rungs[10]["test_accuracy"] = 0.5;
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(table.Count(TableRun::State::kDone), 1u);
  EXPECT_EQ(Open(table.rows[0]), 1u);
  EXPECT_EQ(BestOf(table), "002");
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["best"], "002");
  EXPECT_EQ(json["rows"][0]["runs"][0]["state"], "open");
  EXPECT_EQ(json["rows"][0]["runs"][1]["value"], 0.5);
  EXPECT_EQ(json["rows"][0]["runs"][1]["folder"], "sweeps/a/runs/002-seed2");
  EXPECT_TRUE(json["rows"][1]["mean"].is_null());
}

TEST(SweepHalving, TheBetterHalfGoesOn) {
  const SweepPlan plan = PlanOf(5, {5, 20, 80});
  EXPECT_EQ(MostOf(plan, 0), 5u);
  EXPECT_EQ(MostOf(plan, 1), 3u);
  EXPECT_EQ(MostOf(plan, 2), 2u);
  Results results = NoResults(plan);
  Put(results, "001", 5, 0.1, 0.1);
  Put(results, "002", 5, 0.5, 0.5);
  Put(results, "003", 5, 0.3, 0.3);
  Put(results, "004", 5, 0.2, 0.2);
  Put(results, "005", 5, 0.4, 0.4);
  EXPECT_THAT(ConfigurationsOf(plan, results, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), ElementsAre(1, 2, 4));
  Put(results, "002", 20, 0.5, 0.5);
  Put(results, "003", 20, 0.7, 0.7);
  Put(results, "005", 20, 0.6, 0.6);
  EXPECT_THAT(ConfigurationsOf(plan, results, 2), ElementsAre(2, 4));
  Put(results, "003", 80, 0.6, 0.6);
  Put(results, "005", 80, 0.9, 0.9);
  const ResultTable table = Made(plan, results);
  std::vector<std::string> order;
  for (const TableRow& row : table.rows) order.push_back(absl::StrCat(row.name, "@", row.rounds));
  EXPECT_THAT(order, ElementsAre("005@80", "003@80", "002@20", "004@5", "001@5"));
  EXPECT_TRUE(table.rows[1].against_best.has_value());
  EXPECT_FALSE(table.rows[2].against_best.has_value()) << "of other lengths";
}

TEST(SweepHalving, AnotherMetricShowsTheRunsAndDoesNotSayWhoWentOn) {
  const SweepPlan plan = PlanOf(4, {5, 20});
  Results results = NoResults(plan);
  const auto put = [&](const std::string& name, uint32_t rounds, double accuracy, double loss) {
    Put(results, name, rounds, accuracy, accuracy);
    for (const char* seed : {"-seed1", "-seed2"})
      results.at(name + seed).rungs[rounds]["test_loss"] = loss;
  };
  put("001", 5, 0.5, 0.9);
  put("002", 5, 0.4, 0.8);
  put("003", 5, 0.2, 0.1);  // of the least losses, and yet they ended here
  put("004", 5, 0.1, 0.2);
  put("001", 20, 0.6, 0.7);
  put("002", 20, 0.5, 0.6);
  const ResultTable table =
      MakeTable(plan, results, SweepFolder("sweeps/a"), {.name = "test_loss", .higher = false});
  std::vector<std::string> order;
  for (const TableRow& row : table.rows) order.push_back(absl::StrCat(row.name, "@", row.rounds));
  EXPECT_THAT(order, ElementsAre("002@20", "001@20", "003@5", "004@5"));
  EXPECT_EQ(table.Count(TableRun::State::kOpen), 0u);
  EXPECT_EQ(BestOf(table), "002");
  EXPECT_EQ(table.metrics[0], "test_loss");
}

TEST(SweepTable, ABaselineIsComparedWithTheBestAndIsNeverIt) {
  SweepPlan plan = PlanOf(3);
  plan.configurations[1].baseline = true;
  Results results = NoResults(plan);
  Put(results, "001", 10, 0.50, 0.60);
  Put(results, "002", 10, 0.80, 0.92);
  Put(results, "003", 10, 0.70, 0.82);
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(BestOf(table), "003");
  EXPECT_EQ(table.rows[2].name, "002");
  EXPECT_NEAR(table.rows[2].against_best.value().difference, 0.1, 1e-12);
  EXPECT_THAT(TableText(table), HasSubstr("Baselines stand last."));
  EXPECT_THAT(TableCsv(table), HasSubstr("\n002,0.2,true,2,"));
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["rows"][2]["baseline"], true);
  EXPECT_EQ(json["rows"][0]["baseline"], false);
  // Nothing but the baseline is over: nothing is the best.
  Results other = NoResults(plan);
  Put(other, "002", 10, 0.80, 0.92);
  EXPECT_EQ(BestOf(Made(plan, other)), "");
}

TEST(SweepTable, ARunThatMissedATargetIsDone) {
  SweepPlan plan = PlanOf(3);
  plan.metric = "rounds_to_0.5";
  plan.higher = false;
  plan.report = {"test_accuracy"};
  Results results = NoResults(plan);
  for (const char* name : {"001", "002", "003"}) Put(results, name, 10, 0.4, 0.6);
  EXPECT_EQ(Made(plan, results).best, std::nullopt);
  EXPECT_THAT(TableText(Made(plan, results)), HasSubstr("No run reached an accuracy of 0.5"));
  results.at("001-seed2").rungs[10]["rounds_to_0.5"] = 3;
  for (const char* job : {"002-seed1", "002-seed2"}) results.at(job).rungs[10]["rounds_to_0.5"] = 7;
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(table.Count(TableRun::State::kDone), 6u);
  EXPECT_EQ(BestOf(table), "002") << "more of its runs reached it";
  EXPECT_EQ(table.rows[1].name, "001");
  EXPECT_EQ(table.rows[1].values[1].n, 2u);
  EXPECT_THAT(TableText(table), AllOf(HasSubstr("3 (1 of 2)"), HasSubstr("not reached")));
  EXPECT_EQ(nlohmann::json::parse(TableJson(table))["rows"][1]["reached"], 1);
}

TEST(SweepTable, SaysWhereMeansOverClientsAreOfOtherClients) {
  SweepPlan plan = PlanOf(2);
  const auto is_noted = [&](const char* key, nlohmann::ordered_json one,
                            nlohmann::ordered_json other) {
    plan.keys = {key};
    plan.configurations[0].values = {std::move(one)};
    plan.configurations[1].values = {std::move(other)};
    return TableText(Made(plan, NoResults(plan))).find("who is hostile") != std::string::npos;
  };
  EXPECT_FALSE(is_noted("attack.kind", "none", "alie")) << "central test rows are the same";
  plan.report = {"clients_test_accuracy"};
  EXPECT_TRUE(is_noted("attack.kind", "none", "alie"));
  EXPECT_FALSE(is_noted("attack.kind", "sign-flip", "alie")) << "the same clients";
  EXPECT_TRUE(is_noted("attack.fraction", 0.1, 0.2));
  EXPECT_FALSE(is_noted("attack.scale", 1.0, 2.0));
}

TEST(SweepTable, SaysWhereTargetsAreOfDifferentAccuracies) {
  SweepPlan plan = PlanOf(2);
  plan.report = {"rounds_to_0.5", "bytes_up_to_0.5"};
  Results results = NoResults(plan);
  for (const char* name : {"001", "002"}) Put(results, name, 10, 0.4, 0.6);
  const auto text = [&] { return TableText(Made(plan, results)); };
  EXPECT_THAT(text(), Not(HasSubstr("Only rows of one accuracy compare")))
      << "older sweeps do not say which it was";
  for (auto& [name, result] : results) result.accuracy = "val_accuracy";
  EXPECT_THAT(text(), Not(HasSubstr("Only rows of one accuracy compare")));
  for (const char* job : {"002-seed1", "002-seed2"})
    results.at(job).accuracy = "clients_test_accuracy";
  EXPECT_THAT(text(), HasSubstr("clients_test_accuracy in 002; val_accuracy in 001. Only rows of "
                                "one accuracy compare"));
  plan.report.clear();
  EXPECT_THAT(text(), Not(HasSubstr("Only rows of one accuracy compare")));
}

TEST(SweepHalving, BaselinesTakeNoPlaceAndRunInTheLastRungAlone) {
  SweepPlan plan = PlanOf(5, {5, 20, 80});
  plan.configurations[1].baseline = plan.configurations[4].baseline = true;
  EXPECT_EQ(MostOf(plan, 0), 3u);
  EXPECT_EQ(MostOf(plan, 1), 2u);
  EXPECT_EQ(MostOf(plan, 2), 3u);
  Results results = NoResults(plan);
  EXPECT_THAT(ConfigurationsOf(plan, results, 0), ElementsAre(0, 2, 3));
  Put(results, "001", 5, 0.1, 0.1);
  Put(results, "002", 5, 0.9, 0.9);  // of a sweep that an older version has begun
  Put(results, "003", 5, 0.3, 0.3);
  Put(results, "004", 5, 0.2, 0.2);
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), ElementsAre(2, 3));
  EXPECT_EQ(BestOf(Made(plan, results)), "003");
  Put(results, "003", 20, 0.5, 0.5);
  Put(results, "004", 20, 0.6, 0.6);
  EXPECT_THAT(ConfigurationsOf(plan, results, 2), ElementsAre(1, 3, 4));
  Put(results, "002", 80, 0.9, 0.9);
  results.at("005-seed1").rungs[80]["test_accuracy"] = 0.4;
  const ResultTable open = Made(plan, results);
  EXPECT_EQ(BestOf(open), "004");
  EXPECT_EQ(Open(open.rows.back()), 1u);
  Put(results, "004", 80, 0.7, 0.7);
  Put(results, "005", 80, 0.4, 0.4);
  const ResultTable table = Made(plan, results);
  std::vector<std::string> order;
  for (const TableRow& row : table.rows) order.push_back(absl::StrCat(row.name, "@", row.rounds));
  EXPECT_THAT(order, ElementsAre("004@80", "003@20", "001@5", "002@80", "005@80"));
  EXPECT_EQ(BestOf(table), "004");
  EXPECT_TRUE(table.rows[3].against_best.has_value());
}

TEST(SweepHalving, WhoHasNotReachedATargetYetMayGoOn) {
  SweepPlan plan = PlanOf(4, {5, 20});
  plan.metric = "rounds_to_0.5";
  plan.higher = false;
  Results results = NoResults(plan);
  for (const char* name : {"001", "002", "003", "004"}) Put(results, name, 5, 0.3, 0.3);
  results.at("003-seed1").rungs[5]["rounds_to_0.5"] = 4;
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), ElementsAre(0, 2));
}

TEST(SweepHalving, EqualOnesGoOnInTheirOrderAndThoseThatAllFailedDoNot) {
  const SweepPlan plan = PlanOf(4, {5, 20});
  Results results = NoResults(plan);
  for (const char* name : {"001", "002", "003", "004"}) Put(results, name, 5, 0.5, 0.5);
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), ElementsAre(0, 1));
  for (auto& [name, result] : results) result = {.rungs = {}, .failed = true, .why = "x"};
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), IsEmpty());
  Put(results, "004", 5, 0.5, std::nan(""));
  EXPECT_THAT(ConfigurationsOf(plan, results, 1), ElementsAre(3));
}

// While a rung is being done its configurations are shown as they were after the one before.
TEST(SweepHalving, ARungThatIsBeingDoneLeavesTheTableComparable) {
  const SweepPlan plan = PlanOf(2, {5, 20});
  Results results = NoResults(plan);
  Put(results, "001", 5, 0.5, 0.5);
  Put(results, "002", 5, 0.6, 0.6);
  results.at("002-seed1").rungs[20]["test_accuracy"] = 0.1;
  const ResultTable table = Made(plan, results);
  EXPECT_EQ(BestOf(table), "002");
  EXPECT_EQ(table.rows[0].rounds, 5u);
  EXPECT_EQ(Open(table.rows[0]), 1u);
}

TEST(SweepProgress, SaysHowManyTheBestAndTheTimeThatIsLeft) {
  FakeClock clock;
  std::string written;
  SweepProgress progress({.terminal = false}, clock,
                         [&](absl::string_view text) { absl::StrAppend(&written, text); });
  progress.Update(0, 4, 40);
  EXPECT_EQ(progress.Line(), "0 of 4 done");
  progress.Begin("001-seed1");
  clock.Advance(FromSeconds(10));
  for (uint32_t round = 1; round <= 10; ++round) progress.Round("001-seed1", round);
  EXPECT_THAT(progress.Line(), HasSubstr("about 0:30 left"));
  progress.Best("test_loss 0.5 (001)");
  progress.Update(1, 4, 30);
  progress.End("001-seed1", "001-seed1  test_loss 0.5");
  EXPECT_EQ(written,
            "001-seed1  test_loss 0.5  1 of 4 done  best test_loss 0.5 (001)  about 0:30 left\n");
  EXPECT_THAT(progress.Line(40), AllOf(HasSubstr("left"), Not(HasSubstr("best"))));
}

// A run that goes on begins with a later round: it has not done those before.
TEST(SweepProgress, ARunThatGoesOnCountsItsNewRounds) {
  FakeClock clock;
  SweepProgress progress({.terminal = false}, clock, [](absl::string_view) {});
  progress.Update(0, 1, 20);
  clock.Advance(FromSeconds(10));
  progress.Round("001-seed1", 91);
  progress.Round("001-seed1", 92);
  EXPECT_THAT(progress.Line(), HasSubstr("about 1:30 left"));
}

}  // namespace
}  // namespace macaw::cli
