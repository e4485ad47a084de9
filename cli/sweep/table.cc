#include "cli/sweep/table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/compare/text.h"
#include "cli/simulate/result.h"
#include "core/spelling.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Results = std::map<std::string, JobResult>;

enum class RunState : uint8_t { kOpen, kDone, kFailed };

std::string NameOf(RunState state) {
  return state == RunState::kDone ? "done" : state == RunState::kFailed ? "failed" : "open";
}

// `rung`: the last one that the run is to finish.
RunState StateOf(const SweepPlan& plan, const JobResult& result, const Configuration& what,
                 size_t rung) {
  if (result.failed) return RunState::kFailed;
  const auto reached = result.rungs.find(plan.RoundsOf(what, rung));
  if (reached == result.rungs.end()) return RunState::kOpen;
  const auto value = reached->second.find(plan.metric);
  const bool number = value != reached->second.end() && std::isfinite(value->second);
  return number ? RunState::kDone : RunState::kFailed;
}

std::string WhyOf(const SweepPlan& plan, const JobResult& result) {
  return result.failed ? result.why : absl::StrCat("its ", plan.metric, " is not a finite number");
}

// Of each configuration the last rung that it takes part in, as far as that is known.
std::vector<size_t> LastRungs(const SweepPlan& plan, const Results& results) {
  std::vector<size_t> rungs(plan.configurations.size(), 0);
  for (size_t rung = 1; rung < plan.rung_count(); ++rung) {
    for (const size_t i : ConfigurationsOf(plan, results, rung - 1)) {
      for (const uint64_t seed : plan.seeds) {
        const Configuration& what = plan.configurations[i];
        if (StateOf(plan, results.at(JobName(what, seed)), what, rung - 1) == RunState::kOpen)
          return rungs;
      }
    }
    for (const size_t i : ConfigurationsOf(plan, results, rung)) rungs[i] = rung;
  }
  return rungs;
}

// What the runs that are in the row's estimate have of another metric.
std::vector<double> ReportedBy(const SweepPlan& plan, const Results& results,
                               const SweepTable::Row& row, const std::string& metric) {
  std::vector<double> values;
  const Configuration& what = plan.configurations[row.configuration];
  for (size_t i = 0; i < plan.seeds.size(); ++i) {
    if (!row.standing.values[i].has_value()) continue;
    const JobResult& result = results.at(JobName(what, plan.seeds[i]));
    const auto rung = result.rungs.find(row.rounds);
    if (rung == result.rungs.end()) continue;
    const auto value = rung->second.find(metric);
    if (value != rung->second.end() && std::isfinite(value->second))
      values.push_back(value->second);
  }
  return values;
}

SweepTable::Row RowOf(const SweepPlan& plan, const Results& results, size_t configuration,
                      size_t last) {
  SweepTable::Row row;
  row.configuration = configuration;
  const Configuration& what = plan.configurations[configuration];
  for (const uint64_t seed : plan.seeds) {
    const RunState state = StateOf(plan, results.at(JobName(what, seed)), what, last);
    row.failed += state == RunState::kFailed ? 1 : 0;
    row.open += state == RunState::kOpen ? 1 : 0;
  }
  // A configuration that is at a rung is shown as it was at the rung before.
  row.rung = row.open > 0 && last > 0 ? last - 1 : last;
  row.rounds = plan.RoundsOf(what, row.rung);
  row.standing = StandingOf(plan, results, configuration, row.rung);
  std::vector<double> values;
  for (const std::optional<double>& value : row.standing.values) {
    if (value.has_value()) values.push_back(*value);
  }
  row.estimate = EstimateOf(values);
  for (const std::string& metric : plan.report)
    row.report.push_back(EstimateOf(ReportedBy(plan, results, row, metric)));
  return row;
}

PairedComparison Against(const Standing& row, const Standing& best) {
  std::vector<double> values, others;
  for (size_t i = 0; i < row.values.size(); ++i) {
    if (!row.values[i].has_value() || !best.values[i].has_value()) continue;
    values.push_back(*row.values[i]);
    others.push_back(*best.values[i]);
  }
  return CompareInPairs(values, others);
}

std::string PlainText(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> TextCells(const SweepPlan& plan, const SweepTable::Row& row) {
  const Configuration& what = plan.configurations[row.configuration];
  std::vector<std::string> cells = {what.name};
  for (const Json& value : what.values) cells.push_back(PlainText(value));
  cells.push_back(row.estimate.n == plan.seeds.size()
                      ? absl::StrCat(row.estimate.n)
                      : absl::StrCat(row.estimate.n, " of ", plan.seeds.size()));
  if (!plan.rungs.empty()) cells.push_back(absl::StrCat(row.rounds));
  const bool there = row.estimate.n > 0;
  cells.push_back(there ? MetricText(row.estimate.mean) : "-");
  for (const Estimate& reported : row.report)
    cells.push_back(reported.n > 0 ? NumberText(reported) : "-");
  if (plan.seeds.size() < 2) return cells;
  cells.push_back(row.estimate.std.has_value() ? MetricText(*row.estimate.std) : "-");
  cells.push_back(IntervalText(row.estimate.interval));
  const bool paired = row.against_best.has_value() && row.against_best->n > 0;
  cells.push_back(paired ? MetricText(row.against_best->difference) : "-");
  cells.push_back(paired ? IntervalText(row.against_best->interval) : "-");
  cells.push_back(paired ? ProbabilityText(row.against_best->p) : "-");
  cells.push_back(paired ? ProbabilityText(row.p_holm) : "-");
  return cells;
}

std::string Exact(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.17g", *value) : "";
}
std::optional<double> LowOf(const std::optional<Interval>& interval) {
  return interval.has_value() ? std::optional(interval->low) : std::nullopt;
}
std::optional<double> HighOf(const std::optional<Interval>& interval) {
  return interval.has_value() ? std::optional(interval->high) : std::nullopt;
}
std::string RowsText(const std::string& metric) {
  return server::Name(server::RowsOfMetric(absl::StripPrefix(metric, "best_")));
}
Json Or(const std::optional<double>& value) { return value.has_value() ? Json(*value) : Json(); }
Json Or(const std::optional<Interval>& interval) {
  return interval.has_value() ? Json::array({interval->low, interval->high}) : Json();
}

}  // namespace

SweepTable MakeTable(const SweepPlan& plan, const Results& results) {
  SweepTable table;
  const std::vector<size_t> rungs = LastRungs(plan, results);
  for (size_t i = 0; i < plan.configurations.size(); ++i) {
    table.rows.push_back(RowOf(plan, results, i, rungs[i]));
    const SweepTable::Row& row = table.rows.back();
    table.runs += plan.seeds.size();
    table.failed += row.failed;
    table.done += plan.seeds.size() - row.failed - row.open;
  }
  std::ranges::stable_sort(table.rows, [&](const SweepTable::Row& a, const SweepTable::Row& b) {
    if (a.rung != b.rung) return a.rung > b.rung;
    return ComesBefore(plan, a.standing, b.standing);
  });
  if (table.rows.empty() || !table.rows.front().standing.mean.has_value()) return table;
  table.best = table.rows.front().configuration;
  for (SweepTable::Row& row : table.rows) {
    const bool comparable = row.configuration != *table.best && row.rung == table.rows.front().rung;
    if (comparable) row.against_best = Against(row.standing, table.rows.front().standing);
  }
  std::vector<std::optional<double>> p;
  for (const SweepTable::Row& row : table.rows)
    p.push_back(row.against_best.has_value() ? row.against_best->p : std::nullopt);
  const std::vector<std::optional<double>> holm = HolmAdjusted(p);
  for (size_t i = 0; i < table.rows.size(); ++i) table.rows[i].p_holm = holm[i];
  return table;
}

std::string SweepTableText(const SweepPlan& plan, const SweepTable& table, const Results& results) {
  std::vector<std::string> head = {"configuration"};
  head.insert(head.end(), plan.keys.begin(), plan.keys.end());
  head.push_back("runs");
  if (!plan.rungs.empty()) head.push_back("rounds");
  head.push_back(plan.metric);
  head.insert(head.end(), plan.report.begin(), plan.report.end());
  if (plan.seeds.size() > 1) {
    head.insert(head.end(),
                {"deviation", "95 % interval", "minus the best", "95 % interval", "p", "p, Holm"});
  }
  std::vector<std::vector<std::string>> lines = {head};
  for (const SweepTable::Row& row : table.rows) lines.push_back(TextCells(plan, row));
  std::string text = AlignedText(lines);
  for (const SweepTable::Row& row : table.rows) {
    const Configuration& what = plan.configurations[row.configuration];
    for (const uint64_t seed : plan.seeds) {
      const std::string name = JobName(what, seed);
      const JobResult& result = results.at(name);
      if (StateOf(plan, result, what, row.rung) == RunState::kFailed)
        absl::StrAppend(&text, "failed: ", name, ": ", WhyOf(plan, result), "\n");
    }
  }
  if (plan.seeds.size() > 1 && table.rows.size() > 1) {
    absl::StrAppend(
        &text,
        "Intervals and p are Student's, over the seeds; p is that of the paired "
        "difference from the best, and Holm's holds for all rows together. The best of many looks "
        "better than it is: confirm it with new seeds.\n");
  }
  if (table.rows.size() > 1 && ChoosesByTestRows(plan.metric))
    absl::StrAppend(&text, "warning: ", TestRowsChooseText(plan.metric), "\n");
  return text;
}

std::string SweepTableCsv(const SweepPlan& plan, const SweepTable& table) {
  std::vector<std::string> head = {"configuration"};
  head.insert(head.end(), plan.keys.begin(), plan.keys.end());
  const std::string& metric = plan.metric;
  head.insert(head.end(),
              {"runs", "failed", "rounds", metric, metric + "_std", metric + "_low",
               metric + "_high", "minus_best", "minus_best_low", "minus_best_high", "p", "p_holm"});
  for (const std::string& reported : plan.report)
    head.insert(head.end(), {reported, reported + "_std"});
  std::string text = CsvLine(head);
  for (const SweepTable::Row& row : table.rows) {
    const Configuration& what = plan.configurations[row.configuration];
    std::vector<std::string> cells = {what.name};
    for (const Json& value : what.values) cells.push_back(value.is_null() ? "" : PlainText(value));
    cells.push_back(absl::StrCat(row.estimate.n));
    cells.push_back(absl::StrCat(row.failed));
    cells.push_back(absl::StrCat(row.rounds));
    cells.push_back(
        Exact(row.standing.mean.has_value() ? std::optional(row.estimate.mean) : std::nullopt));
    cells.push_back(Exact(row.estimate.std));
    cells.push_back(Exact(LowOf(row.estimate.interval)));
    cells.push_back(Exact(HighOf(row.estimate.interval)));
    const bool paired = row.against_best.has_value() && row.against_best->n > 0;
    if (paired) {
      cells.push_back(Exact(row.against_best->difference));
      cells.push_back(Exact(LowOf(row.against_best->interval)));
      cells.push_back(Exact(HighOf(row.against_best->interval)));
      cells.push_back(Exact(row.against_best->p));
      cells.push_back(Exact(row.p_holm));
    } else {
      cells.insert(cells.end(), 5, "");
    }
    for (const Estimate& reported : row.report) {
      cells.push_back(Exact(reported.n > 0 ? std::optional(reported.mean) : std::nullopt));
      cells.push_back(Exact(reported.std));
    }
    absl::StrAppend(&text, CsvLine(cells));
  }
  return text;
}

std::string SweepTableJson(const SweepPlan& plan, const SweepTable& table, const Results& results,
                           const SweepFolder& folder) {
  Json json = {
      {"metric", plan.metric},
      {"mode", plan.higher ? "max" : "min"},
      {"report", plan.report},
      {"rows_of_metric", RowsText(plan.metric)},
      {"keys", plan.keys},
      {"runs", table.runs},
      {"done", table.done},
      {"failed", table.failed},
      {"best", table.best.has_value() ? Json(plan.configurations[*table.best].name) : Json()},
      {"rows", Json::array()}};
  for (const SweepTable::Row& row : table.rows) {
    const Configuration& what = plan.configurations[row.configuration];
    Json values = Json::object(), runs = Json::array();
    for (size_t i = 0; i < plan.keys.size(); ++i) values[plan.keys[i]] = what.values[i];
    for (size_t i = 0; i < plan.seeds.size(); ++i) {
      const std::string name = JobName(what, plan.seeds[i]);
      const JobResult& result = results.at(name);
      const RunState state = StateOf(plan, result, what, row.rung);
      runs.push_back({{"name", name},
                      {"seed", plan.seeds[i]},
                      {"folder", folder.RunOf(name)},
                      {"state", NameOf(state)},
                      {"value", Or(row.standing.values[i])},
                      {"why", state == RunState::kFailed ? Json(WhyOf(plan, result)) : Json()}});
    }
    Json against = nullptr;
    if (row.against_best.has_value() && row.against_best->n > 0) {
      against = {{"difference", row.against_best->difference},
                 {"interval", Or(row.against_best->interval)},
                 {"p", Or(row.against_best->p)},
                 {"p_holm", Or(row.p_holm)},
                 {"seeds", row.against_best->n}};
    }
    Json report = Json::object();
    for (size_t i = 0; i < plan.report.size(); ++i) {
      const Estimate& reported = row.report[i];
      report[plan.report[i]] = {{"mean", reported.n > 0 ? Json(reported.mean) : Json()},
                                {"std", Or(reported.std)}};
    }
    const std::optional<double>& mean = row.standing.mean;
    json["rows"].push_back({{"configuration", what.name},
                            {"values", std::move(values)},
                            {"rounds", row.rounds},
                            {"mean", mean.has_value() ? Json(row.estimate.mean) : Json()},
                            {"std", Or(row.estimate.std)},
                            {"interval", Or(row.estimate.interval)},
                            {"report", std::move(report)},
                            {"against_best", std::move(against)},
                            {"runs", std::move(runs)}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
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
