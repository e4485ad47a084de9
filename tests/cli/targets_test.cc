#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "algorithms/builtin.h"
#include "cli/results/compare.h"
#include "cli/results/result.h"
#include "cli/results/table.h"

// Tests of targets, such as virtual_seconds_to_0.8, in tables of runs with and without a clock.
namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTimeTarget[] = "virtual_seconds_to_0.8";

// A run that reached 0.8 in round 4. `seconds`: of its clock then; 0: it has none.
RunResult Reached(const std::string& algorithm, uint64_t seed, double seconds) {
  RunResult run{.folder = algorithm, .algorithm = algorithm, .end = "finished", .seed = seed};
  run.model_digest = algorithm;
  run.final = {{"test_accuracy", 0.85}};
  run.best_metric = "test_accuracy";
  run.rounds_to["0.8"] = 4;
  if (seconds > 0) run.costs = {{"total_virtual_seconds", 60}, {kTimeTarget, seconds}};
  return run;
}

ResultTable TableOfTargets(const std::vector<RunResult>& runs) {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  auto table = Compare(runs, {"rounds_to_0.8", kTimeTarget}, registry);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : ResultTable();
}

TEST(Targets, RunsWithoutAClockDoNotMissATargetOfVirtualTime) {
  const ResultTable table = TableOfTargets({Reached("fedavg", 1, 12), Reached("fedprox", 1, 0)});
  const std::string text = TableText(table);
  EXPECT_THAT(text, AllOf(HasSubstr("virtual_seconds_to_0.8: 1 of 2 runs ran without [devices]"),
                          Not(HasSubstr("not reached")), Not(HasSubstr("reached it"))));
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["rows"][0]["report"][kTimeTarget]["reached"], 1);
  EXPECT_TRUE(json["rows"][1]["report"][kTimeTarget]["reached"].is_null());
  EXPECT_EQ(json["rows"][1]["report"]["rounds_to_0.8"]["reached"], 1);
}

TEST(Targets, RunsWithAClockMissATargetOfVirtualTime) {
  RunResult missed = Reached("fedprox", 1, 12);
  missed.rounds_to.clear();
  missed.costs.erase(kTimeTarget);
  const ResultTable table = TableOfTargets({Reached("fedavg", 1, 12), missed});
  EXPECT_THAT(TableText(table), AllOf(HasSubstr("not reached"), Not(HasSubstr("without [devices]")),
                                      HasSubstr("virtual_seconds_to_0.8: 1 of 2 runs reached it")));
  const auto json = nlohmann::json::parse(TableJson(table));
  EXPECT_EQ(json["rows"][1]["report"][kTimeTarget]["reached"], 0);
}

// As a sweep's report names it.
TEST(Targets, WithoutAnyClockNoAccuracyIsSaidToBeMissed) {
  ResultTable table{.metrics = {kTimeTarget}};
  table.rows.resize(1);
  for (const uint64_t seed : {1, 2})
    table.rows[0].runs.push_back({.seed = seed, .has_clock = false});
  Summarise(table);
  EXPECT_THAT(TableText(table), AllOf(HasSubstr("2 of 2 runs ran without [devices]"),
                                      Not(HasSubstr("No run reached"))));
}

}  // namespace
}  // namespace macaw::cli
