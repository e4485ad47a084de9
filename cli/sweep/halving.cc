#include "cli/sweep/halving.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

using State = TableRun::State;

TableRun RunAt(const SweepPlan& plan, const JobResult& result, uint32_t rounds,
               const std::vector<std::string>& metrics) {
  const auto reached = result.rungs.find(rounds);
  if (reached == result.rungs.end())
    return {.state = result.failed ? State::kFailed : State::kOpen, .why = result.why};
  TableRun run;
  for (const std::string& metric : metrics) {
    const auto value = reached->second.find(metric);
    if (value != reached->second.end()) run.values[metric] = value->second;
  }
  const auto value = reached->second.find(plan.metric);
  if (value == reached->second.end() || !std::isfinite(value->second)) {
    run.state = State::kFailed;
    run.why = absl::StrCat("its ", plan.metric, " is not a finite number");
  }
  return run;
}

}  // namespace

TableRow RowAt(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
               size_t configuration, size_t rung, const std::vector<std::string>& metrics) {
  const Configuration& what = plan.configurations[configuration];
  TableRow row{.name = what.name,
               .settings = what.values,
               .rounds = plan.RoundsOf(what, rung),
               .rung = rung};
  for (const uint64_t seed : plan.seeds) {
    const std::string name = JobName(what, seed);
    TableRun& run = row.runs.emplace_back(RunAt(plan, results.at(name), row.rounds, metrics));
    run.seed = seed;
    run.name = name;
  }
  return row;
}

std::vector<size_t> ConfigurationsOf(const SweepPlan& plan,
                                     const std::map<std::string, JobResult>& results, size_t rung) {
  std::vector<size_t> configurations;
  if (rung == 0) {
    for (size_t i = 0; i < plan.configurations.size(); ++i) configurations.push_back(i);
    return configurations;
  }
  ResultTable table{
      .metrics = {plan.metric}, .chosen = 0, .higher = plan.higher, .best_first = true};
  for (const size_t i : ConfigurationsOf(plan, results, rung - 1))
    table.rows.push_back(RowAt(plan, results, i, rung - 1, table.metrics));
  Summarise(table);
  table.rows.resize((table.rows.size() + plan.factor - 1) / plan.factor);
  for (const TableRow& row : table.rows) {
    if (row.values.front().n > 0) configurations.push_back(plan.IndexOf(row.name));
  }
  std::ranges::sort(configurations);
  return configurations;
}

size_t MostOf(const SweepPlan& plan, size_t rung) {
  size_t count = plan.configurations.size();
  for (size_t i = 0; i < rung; ++i) count = (count + plan.factor - 1) / plan.factor;
  return count;
}

}  // namespace macaw::cli
