// Columns and keys that only some runs of a table have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/builtin.h"
#include "cli/results/compare.h"
#include "cli/results/table.h"
#include "cli/sweep/table.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// 001 and 002, over the seeds 1 and 2.
SweepPlan PlanOfTwo() {
  SweepPlan plan;
  plan.metric = "test_accuracy";
  plan.keys = {"local.lr"};
  plan.seeds = {1, 2};
  for (const double rate : {0.1, 0.2}) {
    Configuration configuration;
    configuration.name = absl::StrCat("00", plan.configurations.size() + 1);
    configuration.values = {rate};
    configuration.rounds = 10;
    plan.configurations.push_back(std::move(configuration));
  }
  return plan;
}

std::map<std::string, JobResult> AllDone() {
  std::map<std::string, JobResult> results;
  for (const auto& [name, accuracy] : std::map<std::string, double>{
           {"001-seed1", 0.5}, {"001-seed2", 0.6}, {"002-seed1", 0.8}, {"002-seed2", 0.9}})
    results[name].rungs[10]["test_accuracy"] = accuracy;
  return results;
}

// Another metric than the sweep's need not be in all runs: that is no failure.
TEST(LackingColumns, SaysWhichRunsHaveNoSuchColumn) {
  const SweepPlan plan = PlanOfTwo();
  std::map<std::string, JobResult> results = AllDone();
  results.at("002-seed1").rungs[10]["backdoor_success"] = 0.25;
  results.at("002-seed2").rungs[10]["backdoor_success"] = 0.5;
  const ResultTable table = MakeTable(plan, results, SweepFolder("sweeps/a"),
                                      {.name = "backdoor_success", .higher = false});
  EXPECT_EQ(table.Count(TableRun::State::kFailed), 0u);
  EXPECT_EQ(table.Count(TableRun::State::kDone), 4u);
  EXPECT_EQ(table.rows.at(*table.best).name, "002");
  const std::string text = TableText(table);
  EXPECT_THAT(text, AllOf(HasSubstr("backdoor_success: 2 of 4 runs have no such column"),
                          HasSubstr("(001-seed1, 001-seed2)"), Not(HasSubstr("failed"))));
  EXPECT_THAT(text, HasSubstr("\n001            0.1       2     1, 2   -  "));
  results.at("002-seed2").rungs[10]["backdoor_success"] = std::nan("");
  EXPECT_THAT(TableText(MakeTable(plan, results, SweepFolder("sweeps/a"),
                                  {.name = "backdoor_success", .higher = false})),
              HasSubstr("failed: 002-seed2: its backdoor_success is not a finite number"));
  EXPECT_EQ(MakeTable(plan, results, SweepFolder("sweeps/a")).Count(TableRun::State::kDone), 4u)
      << "by the sweep's own metric";
}

// What is reported beside the metric likewise.
TEST(LackingColumns, ShowsADashWhereARunHasNotWhatIsReported) {
  SweepPlan plan = PlanOfTwo();
  plan.report = {"backdoor_success"};
  std::map<std::string, JobResult> results = AllDone();
  for (const char* name : {"002-seed1", "002-seed2"})
    results.at(name).rungs[10]["backdoor_success"] = 0.25;
  const ResultTable table = MakeTable(plan, results, SweepFolder("sweeps/a"));
  EXPECT_EQ(table.Count(TableRun::State::kDone), 4u);
  EXPECT_EQ(table.rows[0].values[1].n, 2u);
  EXPECT_EQ(table.rows[1].values[1].n, 0u);
  EXPECT_TRUE(
      nlohmann::json::parse(TableJson(table))["rows"][1]["report"]["backdoor_success"]["mean"]
          .is_null());
}

TEST(LackingColumns, ShowsNoKeyOfAnotherKindOfAttack) {
  const auto attacked = [](const char* kind, std::map<std::string, std::string> more) {
    more["attack.kind"] = absl::StrCat("\"", kind, "\"");
    more["attack.fraction"] = "0.3";
    RunResult run{.folder = absl::StrCat("runs/", kind), .algorithm = "fedavg", .end = "finished"};
    run.settings = std::move(more);
    run.seed = 1;
    run.rounds = 10;
    run.final = {{"test_accuracy", 0.5}};
    return run;
  };
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  const auto compared =
      Compare({attacked("alie", {}), attacked("backdoor", {{"attack.target", "7"}}),
               attacked("backdoor", {}), attacked("free-rider", {{"attack.noise", "0.5"}})},
              {"test_accuracy"}, registry);
  ASSERT_TRUE(compared.ok()) << compared.status();
  const ResultTable& table = *compared;
  EXPECT_THAT(table.keys, ElementsAre("attack.kind", "attack.noise", "attack.target"));
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_THAT(table.rows[0].settings, ElementsAre("alie", nullptr, nullptr));
  EXPECT_THAT(table.rows[1].settings, ElementsAre("backdoor", nullptr, 7));
  EXPECT_THAT(table.rows[2].settings, ElementsAre("backdoor", nullptr, 0));
  EXPECT_THAT(table.rows[3].settings, ElementsAre("free-rider", 0.5, nullptr));
}

}  // namespace
}  // namespace macaw::cli
