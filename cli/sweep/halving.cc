#include "cli/sweep/halving.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/results/result.h"
#include "core/settings/section.h"

namespace macaw::cli {
namespace {

using State = TableRun::State;

TableRun RunAt(const SweepPlan& plan, const JobResult& result, uint32_t rounds,
               const std::vector<std::string>& metrics, Lacking lacking) {
  const auto reached = result.rungs.find(rounds);
  if (reached == result.rungs.end())
    return {.state = result.failed ? State::kFailed : State::kOpen, .why = result.why};
  TableRun run{.accuracy = result.accuracy, .has_clock = HasClock(reached->second)};
  for (const std::string& metric : metrics) {
    const auto value = reached->second.find(metric);
    if (value != reached->second.end()) run.values[metric] = value->second;
  }
  const auto value = reached->second.find(plan.metric);
  const bool missed =
      value == reached->second.end() &&
      (lacking == Lacking::kIsDone || settings::Contains(TargetsOf(reached->second), plan.metric));
  if (!missed && (value == reached->second.end() || !std::isfinite(value->second))) {
    run.state = State::kFailed;
    run.why = absl::StrCat("its ", plan.metric, " is not a finite number");
  }
  return run;
}

std::vector<size_t> IndicesOf(const SweepPlan& plan, bool baselines) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < plan.configurations.size(); ++i) {
    if (plan.configurations[i].baseline == baselines) indices.push_back(i);
  }
  return indices;
}

// Those of a rung, but for the last one, that go on to the next.
std::vector<size_t> BestOf(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
                           size_t rung) {
  ResultTable table{
      .metrics = {plan.metric}, .chosen = 0, .higher = plan.higher, .best_first = true};
  for (const size_t i : ConfigurationsOf(plan, results, rung))
    table.rows.push_back(RowAt(plan, results, i, rung, table.metrics));
  Summarise(table);
  table.rows.resize((table.rows.size() + plan.factor - 1) / plan.factor);
  std::vector<size_t> best;
  for (const TableRow& row : table.rows) {
    // One whose runs have not reached a target yet may do so later.
    const bool lives =
        std::ranges::find(row.runs, State::kDone, &TableRun::state) != row.runs.end();
    if (lives) best.push_back(plan.IndexOf(row.name));
  }
  return best;
}

}  // namespace

TableRow RowAt(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
               size_t configuration, size_t rung, const std::vector<std::string>& metrics,
               Lacking lacking) {
  const Configuration& what = plan.configurations[configuration];
  TableRow row{.name = what.name,
               .settings = what.values,
               .rounds = plan.RoundsOf(what, rung),
               .rung = rung,
               .baseline = what.baseline};
  for (const uint64_t seed : plan.seeds) {
    const std::string name = JobName(what, seed);
    TableRun& run =
        row.runs.emplace_back(RunAt(plan, results.at(name), row.rounds, metrics, lacking));
    run.seed = seed;
    run.name = name;
  }
  return row;
}

std::vector<size_t> ConfigurationsOf(const SweepPlan& plan,
                                     const std::map<std::string, JobResult>& results, size_t rung) {
  std::vector<size_t> configurations =
      rung == 0 ? IndicesOf(plan, /*baselines=*/false) : BestOf(plan, results, rung - 1);
  if (rung + 1 == plan.rung_count()) {
    const std::vector<size_t> baselines = IndicesOf(plan, /*baselines=*/true);
    configurations.insert(configurations.end(), baselines.begin(), baselines.end());
  }
  std::ranges::sort(configurations);
  return configurations;
}

size_t MostOf(const SweepPlan& plan, size_t rung) {
  size_t count = plan.candidates();
  for (size_t i = 0; i < rung; ++i) count = (count + plan.factor - 1) / plan.factor;
  const bool last = rung + 1 == plan.rung_count();
  return count + (last ? plan.configurations.size() - plan.candidates() : 0);
}

}  // namespace macaw::cli
