#include "cli/sweep/table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/results/result.h"
#include "cli/sweep/halving.h"
#include "core/settings/section.h"

namespace macaw::cli {
namespace {

using Results = std::map<std::string, JobResult>;
using State = TableRun::State;

bool HasOpen(const TableRow& row) {
  return std::ranges::find(row.runs, State::kOpen, &TableRun::state) != row.runs.end();
}

void AddMetrics(const SweepPlan& plan, const Results& results, ResultTable& table) {
  const auto add = [&](const std::string& metric) {
    if (!settings::Contains(table.metrics, metric)) table.metrics.push_back(metric);
  };
  add(plan.metric);
  for (const std::string& metric : plan.report) add(metric);
  const size_t asked_for = table.metrics.size();
  if (plan.configurations.size() > 1) return;
  for (const auto& [name, result] : results) {
    for (const auto& [rounds, values] : result.rungs) {
      for (const auto& [metric, value] : values) {
        if (IsColumn(metric)) add(metric);
      }
    }
  }
  table.further = table.metrics.size() - asked_for;
}

// Of each configuration the last rung that it takes part in, as far as that is known.
std::vector<size_t> LastRungs(const SweepPlan& plan, const Results& results) {
  std::vector<size_t> rungs(plan.configurations.size(), 0);
  for (size_t i = 0; i < rungs.size(); ++i) {
    if (plan.configurations[i].baseline) rungs[i] = plan.rung_count() - 1;
  }
  for (size_t rung = 1; rung < plan.rung_count(); ++rung) {
    for (const size_t i : ConfigurationsOf(plan, results, rung - 1)) {
      if (HasOpen(RowAt(plan, results, i, rung - 1, {}))) return rungs;
    }
    for (const size_t i : ConfigurationsOf(plan, results, rung)) rungs[i] = rung;
  }
  return rungs;
}

TableRow RowOf(const SweepPlan& plan, const Results& results, size_t configuration, size_t last,
               const std::vector<std::string>& metrics, Lacking lacking) {
  TableRow row = RowAt(plan, results, configuration, last, metrics, lacking);
  if (!HasOpen(row) || last == 0 || row.baseline) return row;
  TableRow before = RowAt(plan, results, configuration, last - 1, metrics, lacking);
  for (size_t i = 0; i < row.runs.size(); ++i) {
    before.runs[i].goes_on = row.runs[i].state == State::kOpen;
    if (row.runs[i].state == State::kFailed) before.runs[i] = row.runs[i];
  }
  return before;
}

// Of a target the table itself says how many have not reached it.
void NoteLacking(const std::string& metric, ResultTable& table) {
  if (IsTarget(metric)) return;
  size_t done = 0;
  std::vector<std::string> lacking;
  for (const TableRow& row : table.rows) {
    done += row.done();
    for (const TableRun& run : row.runs) {
      if (run.state == State::kDone && !run.values.contains(metric)) lacking.push_back(run.name);
    }
  }
  if (lacking.empty()) return;
  constexpr size_t kMost = 5;
  const size_t more = lacking.size() - std::min(lacking.size(), kMost);
  const size_t count = lacking.size();
  lacking.resize(count - more);
  table.notes.push_back(
      absl::StrCat(metric, ": ", count, " of ", done, " runs ", count == 1 ? "has" : "have",
                   " no such column, or no number in it (", absl::StrJoin(lacking, ", "),
                   more > 0 ? absl::StrCat(" and ", more, " more") : "", "), and ",
                   count == 1 ? "shows" : "show", " - there."));
}

}  // namespace

ResultTable MakeTable(const SweepPlan& plan, const Results& results, const SweepFolder& folder) {
  return MakeTable(plan, results, folder, {.name = plan.metric, .higher = plan.higher});
}

ResultTable MakeTable(const SweepPlan& plan, const Results& results, const SweepFolder& folder,
                      const ShownMetric& shown) {
  const std::vector<size_t> rungs = LastRungs(plan, results);
  SweepPlan by_shown = plan;
  by_shown.metric = shown.name;
  by_shown.higher = shown.higher;
  ResultTable table{.keys = plan.keys,
                    .chosen = 0,
                    .higher = shown.higher,
                    .best_first = true,
                    .halved = !plan.rungs.empty()};
  AddMetrics(by_shown, results, table);
  const Lacking lacking = shown.name == plan.metric ? Lacking::kFails : Lacking::kIsDone;
  for (size_t i = 0; i < plan.configurations.size(); ++i) {
    TableRow& row =
        table.rows.emplace_back(RowOf(by_shown, results, i, rungs[i], table.metrics, lacking));
    for (TableRun& run : row.runs) run.folder = folder.RunOf(plan, run.name);
  }
  if (lacking == Lacking::kIsDone) NoteLacking(shown.name, table);
  Summarise(table);
  return table;
}

std::string SettingsText(const SweepPlan& plan, const Configuration& configuration) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < plan.keys.size(); ++i) {
    if (configuration.values[i].is_null()) continue;
    parts.push_back(absl::StrCat(plan.keys[i], " ", PlainText(configuration.values[i])));
  }
  return parts.empty() ? "the base" : absl::StrJoin(parts, ", ");
}

}  // namespace macaw::cli
