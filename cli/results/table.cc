#include "cli/results/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/results/result.h"
#include "core/spelling.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using State = TableRun::State;

std::optional<double> ValueOf(const TableRun& run, const std::string& metric) {
  const auto found = run.values.find(metric);
  const bool there =
      run.state == State::kDone && found != run.values.end() && std::isfinite(found->second);
  return there ? std::optional(found->second) : std::nullopt;
}

// Over the runs that are done. If one of them lacks the metric, a mean of the others would mislead;
// of a target the table says how many they are.
Estimate EstimateRow(const TableRow& row, const std::string& metric) {
  std::vector<double> values;
  for (const TableRun& run : row.runs) {
    if (run.state != State::kDone) continue;
    const std::optional<double> value = ValueOf(run, metric);
    if (!value.has_value() && !IsTarget(metric)) return {};
    if (value.has_value()) values.push_back(*value);
  }
  return EstimateOf(values);
}

// Where a seed occurs twice, the first run counts.
std::map<uint64_t, double> BySeed(const TableRow& row, const std::string& metric) {
  std::map<uint64_t, double> values;
  for (const TableRun& run : row.runs) {
    if (const std::optional<double> value = ValueOf(run, metric))
      values.try_emplace(run.seed, *value);
  }
  return values;
}

std::optional<PairedComparison> Against(const std::map<uint64_t, double>& best, const TableRow& row,
                                        const std::string& metric) {
  std::vector<double> values, others;
  for (const auto& [seed, value] : BySeed(row, metric)) {
    const auto other = best.find(seed);
    if (other == best.end()) continue;
    values.push_back(value);
    others.push_back(other->second);
  }
  return values.empty() ? std::nullopt : std::optional(CompareInPairs(values, others));
}

// Baselines last. Later rungs first, then rows that have a value, then those that have one of each
// run, then the better mean; of a target those that more runs have reached, before the mean.
bool ComesBefore(const ResultTable& table, const TableRow& a, const TableRow& b) {
  if (a.baseline != b.baseline) return b.baseline;
  if (a.rung != b.rung) return a.rung > b.rung;
  const Estimate &one = a.values[*table.chosen], &other = b.values[*table.chosen];
  if ((one.n > 0) != (other.n > 0)) return one.n > 0;
  const bool whole = one.n == a.runs.size();
  if (whole != (other.n == b.runs.size())) return whole;
  if (one.n != other.n && IsTarget(table.metrics[*table.chosen])) return one.n > other.n;
  if (one.n == 0 || one.mean == other.mean) return false;
  return table.higher ? one.mean > other.mean : one.mean < other.mean;
}

void PairWithBest(ResultTable& table) {
  const std::string& metric = table.metrics[*table.chosen];
  const auto before = [&](const TableRow& a, const TableRow& b) {
    return ComesBefore(table, a, b);
  };
  if (table.best_first) std::ranges::stable_sort(table.rows, before);
  const auto best = std::ranges::min_element(table.rows, before);
  if (best == table.rows.end() || best->values[*table.chosen].n == 0) return;
  table.best = static_cast<size_t>(best - table.rows.begin());
  const std::map<uint64_t, double> values = BySeed(*best, metric);
  std::vector<std::optional<double>> p;
  for (TableRow& row : table.rows) {
    if (&row != &*best && row.rung == best->rung) row.against_best = Against(values, row, metric);
    p.push_back(row.against_best.has_value() ? row.against_best->p : std::nullopt);
  }
  const std::vector<std::optional<double>> holm = HolmAdjusted(p);
  for (size_t i = 0; i < table.rows.size(); ++i) table.rows[i].p_holm = holm[i];
}

// What a reader must know of a target that not all runs have reached, or could have.
void AddTargetNote(ResultTable& table, size_t metric) {
  const std::string& name = table.metrics[metric];
  size_t done = 0, could = 0, reached = 0;
  for (const TableRow& row : table.rows) {
    done += row.done();
    could += row.could_reach(name);
    reached += row.values[metric].n;
  }
  if (could < done) {
    table.notes.push_back(absl::StrCat(name, ": ", done - could, " of ", done,
                                       " runs ran without [devices], so they have no clock and no "
                                       "virtual seconds."));
  }
  if (reached == could) return;
  if (reached == 0) {
    table.notes.push_back(absl::StrCat("No run reached an accuracy of ",
                                       name.substr(name.rfind('_') + 1),
                                       ", by the metric of its "
                                       "best round: ",
                                       name, " has no values."));
  } else {
    table.notes.push_back(absl::StrCat(
        name, ": ", reached, " of ", could,
        " runs reached it. A row's mean is over those of its runs that did, as many as it says."));
  }
}

// What a reader must know of targets in rows whose runs count them by different accuracies.
void AddAccuracyNote(ResultTable& table) {
  const auto target = std::ranges::find_if(table.metrics, &IsTarget);
  if (target == table.metrics.end()) return;
  std::map<std::string, std::vector<std::string>> rows;  // by accuracy
  for (const TableRow& row : table.rows) {
    std::set<std::string> accuracies;
    for (const TableRun& run : row.runs) {
      if (run.state == State::kDone && !run.accuracy.empty()) accuracies.insert(run.accuracy);
    }
    for (const std::string& accuracy : accuracies) rows[accuracy].push_back(row.name);
  }
  if (rows.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [accuracy, names] : rows) {
    const bool named = !names.front().empty();
    parts.push_back(absl::StrCat(
        accuracy, " in ", named ? absl::StrJoin(names, ", ") : Counted(names.size(), "row")));
  }
  table.notes.push_back(absl::StrCat(
      *target, " is of the accuracy that chooses a run's best round, and the rows differ in it: ",
      absl::StrJoin(parts, "; "), ". Only rows of one accuracy compare."));
}

// Rows with the same text have the same hostile clients, as far as the keys say: those of the same
// fraction, whatever the kind of the attack. "none": a row without an attack.
std::string HostileIn(const ResultTable& table, const TableRow& row) {
  std::string fraction;
  bool attacked = true;
  for (size_t i = 0; i < table.keys.size(); ++i) {
    const Json& value = row.settings[i];
    if (table.keys[i] == "attack.kind") attacked = !value.is_null() && PlainText(value) != "none";
    if (table.keys[i] == "attack.fraction") fraction = PlainText(value);
  }
  return attacked ? fraction : "none";
}

// What a reader must know of means over clients in rows that differ in who is hostile: the rows of
// these clients are left out.
void AddAttackNote(ResultTable& table) {
  const auto metric = std::ranges::find_if(table.metrics, [](const std::string& name) {
    return absl::StrContains(name, "clients_test_") || absl::StrContains(name, "clients_val_");
  });
  if (metric == table.metrics.end()) return;
  std::set<std::string> hostile;
  for (const TableRow& row : table.rows) hostile.insert(HostileIn(table, row));
  if (hostile.size() < 2) return;
  table.notes.push_back(absl::StrCat(
      *metric,
      " leaves out the rows of hostile clients, and the rows of this table differ in who "
      "is hostile: their means are over different clients. test_* are over the same rows."));
}

void AddNotes(ResultTable& table) {
  if (table.paired()) {
    table.notes.push_back(absl::StrCat(
        "Intervals and p are Student's, over the seeds. p is of the paired test of ",
        table.metrics[*table.chosen],
        " against the best row, over common seeds; Holm's holds for all rows together. The best of "
        "many looks better than it is: confirm it with new seeds."));
  }
  if (table.has_equal_differences()) {
    table.notes.push_back(absl::StrCat(
        "A row whose ", table.metrics[*table.chosen],
        " differs from the best by the same number with every seed has no interval and no p: there "
        "is no deviation to test it by. More seeds, or more test rows, tell more."));
  }
  const auto candidates = std::ranges::count(table.rows, false, &TableRow::baseline);
  if (std::cmp_less(candidates, table.rows.size())) {
    table.notes.push_back(
        "Baselines stand last. They are compared with the best configuration, and are never the "
        "best themselves.");
  }
  for (size_t i = 0; i < table.metrics.size(); ++i) {
    const std::string& metric = table.metrics[i];
    if (IsTarget(metric)) AddTargetNote(table, i);
    const bool chooses = absl::StartsWith(metric, "best_") ||
                         (table.chosen == i && table.best_first && candidates > 1);
    if (chooses && ChoosesByTestRows(metric))
      table.notes.push_back(absl::StrCat("warning: ", TestRowsChooseText(metric)));
  }
  AddAccuracyNote(table);
  AddAttackNote(table);
}

std::string NameOf(State state) {
  return state == State::kDone ? "done" : state == State::kFailed ? "failed" : "open";
}

Json Or(const std::optional<double>& value) { return value.has_value() ? Json(*value) : Json(); }
Json Or(const std::optional<Interval>& interval) {
  return interval.has_value() ? Json::array({interval->low, interval->high}) : Json();
}

Json RowJson(const ResultTable& table, const TableRow& row) {
  Json values = Json::object(), report = Json::object(), runs = Json::array();
  for (size_t i = 0; i < table.keys.size(); ++i) values[table.keys[i]] = row.settings[i];
  const auto estimate = [&](size_t metric) {
    Json json = JsonOf(row.values[metric]);
    const std::string& name = table.metrics[metric];
    if (!IsTarget(name)) return json;
    const bool never = row.done() > 0 && row.could_reach(name) == 0;
    json["reached"] = never ? Json() : Json(row.values[metric].n);
    return json;
  };
  for (size_t i = 0; i < table.metrics.size(); ++i) {
    if (table.chosen != i) report[table.metrics[i]] = estimate(i);
  }
  for (const TableRun& run : row.runs) {
    runs.push_back(
        {{"name", run.name},
         {"seed", run.seed},
         {"folder", run.folder},
         {"state", NameOf(run.state)},
         {"value",
          table.chosen.has_value() ? Or(ValueOf(run, table.metrics[*table.chosen])) : Json()},
         {"why", run.state == State::kFailed ? Json(run.why) : Json()}});
  }
  Json against = nullptr;
  if (row.against_best.has_value()) {
    against = {{"difference", row.against_best->difference},
               {"interval", Or(row.against_best->interval)},
               {"p", Or(row.against_best->p)},
               {"p_holm", Or(row.p_holm)},
               {"seeds", row.against_best->n}};
  }
  Json json = {{"configuration", row.name},
               {"values", std::move(values)},
               {"baseline", row.baseline},
               {"rounds", row.rounds}};
  json.update(table.chosen.has_value() ? estimate(*table.chosen) : JsonOf(Estimate()));
  json.update({{"report", std::move(report)},
               {"against_best", std::move(against)},
               {"runs", std::move(runs)}});
  return json;
}

}  // namespace

size_t TableRow::done() const {
  return static_cast<size_t>(std::ranges::count(runs, State::kDone, &TableRun::state));
}

size_t TableRow::could_reach(const std::string& target) const {
  return static_cast<size_t>(std::ranges::count_if(runs, [&](const TableRun& run) {
    return run.state == State::kDone && (run.has_clock || !IsOfVirtualTime(target));
  }));
}

size_t ResultTable::Count(State state) const {
  size_t count = 0;
  for (const TableRow& row : rows) {
    count += static_cast<size_t>(std::ranges::count_if(row.runs, [&](const TableRun& run) {
      return (run.goes_on ? State::kOpen : run.state) == state;
    }));
  }
  return count;
}

size_t ResultTable::runs() const {
  size_t count = 0;
  for (const TableRow& row : rows) count += row.runs.size();
  return count;
}

bool ResultTable::several_seeds() const {
  return std::ranges::any_of(rows, [](const TableRow& row) { return row.runs.size() > 1; });
}

bool ResultTable::has_equal_differences() const {
  return std::ranges::any_of(rows, [](const TableRow& row) {
    return row.against_best.has_value() && row.against_best->same;
  });
}

bool ResultTable::paired() const {
  return chosen.has_value() && rows.size() > 1 && several_seeds();
}

void Summarise(ResultTable& table) {
  for (TableRow& row : table.rows) {
    row.values.clear();
    for (const std::string& metric : table.metrics) row.values.push_back(EstimateRow(row, metric));
  }
  if (table.chosen.has_value()) PairWithBest(table);
  AddNotes(table);
}

std::string TableJson(const ResultTable& table) {
  Json metric, rows_of_metric, report = Json::array();
  for (size_t i = 0; i < table.metrics.size(); ++i) {
    if (table.chosen != i) {
      if (i + table.further < table.metrics.size()) report.push_back(table.metrics[i]);
      continue;
    }
    metric = table.metrics[i];
    rows_of_metric =
        server::Name(server::RowsOfMetric(absl::StripPrefix(table.metrics[i], "best_")));
  }
  Json json = {{"metric", std::move(metric)},
               {"mode", table.higher ? "max" : "min"},
               {"report", std::move(report)},
               {"rows_of_metric", std::move(rows_of_metric)},
               {"keys", table.keys},
               {"runs", table.runs()},
               {"done", table.Count(State::kDone)},
               {"failed", table.Count(State::kFailed)},
               {"best", table.best.has_value() ? Json(table.rows[*table.best].name) : Json()},
               {"rows", Json::array()}};
  for (const TableRow& row : table.rows) json["rows"].push_back(RowJson(table, row));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json JsonOf(const Estimate& estimate) {
  return {{"mean", estimate.n > 0 ? Json(estimate.mean) : Json()},
          {"std", Or(estimate.std)},
          {"interval", Or(estimate.interval)}};
}

}  // namespace macaw::cli
