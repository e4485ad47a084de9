#include "cli/sweep/metric.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/config/key_error.h"
#include "cli/results/result.h"
#include "cli/results/text.h"
#include "cli/simulate/selection.h"
#include "core/status.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

constexpr char kAtBest[] = "_at_best_";
constexpr char kDidYouMean[] = "did you mean";  // of an error that names a similar column

// The plan as far as a sweep's metric is concerned: without evaluations during the run there is
// still one after the last round.
RunPlan Evaluated(const CheckedRun& run) {
  RunPlan plan = run.config.run;
  if (plan.evaluation.every == 0) plan.evaluation.every = 1;
  return plan;
}

using server::MetricRows;

bool HasAccuracy(const CheckedRun& run) {
  return std::ranges::any_of(run.columns, [](const server::MetricColumn& column) {
    return absl::StrContains(column.name, "accuracy");
  });
}

// Why the run will not have a value that is made of its columns; "": it may have it.
std::string WhyNever(const std::string& metric, const CheckedRun& run) {
  if (IsOfVirtualTime(metric) && !run.config.run.devices.on())
    return "it is of virtual time, and a run has that with [devices]";
  if (IsTarget(metric) && !HasAccuracy(run)) return "the run has no accuracy";
  const absl::string_view column = absl::StripPrefix(metric, "best_");
  if (column.size() < metric.size() && !server::OfUntrainedRows(column)) {
    return absl::StrCat(
        "a run notes its best round by metrics over all test or all validation rows alone; name \"",
        column, "\" instead, which is of the whole run or of its last round");
  }
  return "";
}

// Checks a metric such as "test_accuracy_at_best_val_accuracy". Returns an error unless the run
// will have both columns, and its summary the first one in the best round by the second one.
absl::Status CheckAtBest(const std::string& key, const std::string& metric, const CheckedRun& run) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(metric, kAtBest);
  for (const std::string& column : {parts.first, parts.second})
    MACAW_RETURN_IF_ERROR(CheckHas(key, column, Evaluated(run), run.columns, run.rows));
  const bool reported = server::RowsOfMetric(parts.first) == MetricRows::kTest &&
                        server::OfUntrainedRows(parts.first);
  const bool chooses = server::RowsOfMetric(parts.second) == MetricRows::kValidation &&
                       server::OfUntrainedRows(parts.second);
  if (reported && chooses) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      key, " \"", metric,
      "\" will have no value: a run notes metrics over all test rows in the best round "
      "of metrics over all validation rows, such as test_accuracy_at_best_val_accuracy"));
}

absl::Status CheckSweepMetric(const std::string& key, const std::string& metric,
                              const CheckedRun& run) {
  if (absl::StrContains(metric, kAtBest)) return CheckAtBest(key, metric, run);
  MACAW_RETURN_IF_ERROR(CheckTarget(key, metric));
  const std::string column(absl::StripPrefix(metric, "best_"));
  if (IsColumn(column))
    MACAW_RETURN_IF_ERROR(CheckHas(key, column, Evaluated(run), run.columns, run.rows));
  const std::string why = WhyNever(metric, run);
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " \"", metric, "\" will have no value: ", why));
}

// Where a sweep may look for rows when it chooses.
enum class ChoosingRows : uint8_t { kAll, kNoValidation };

// The first of the rules' own metrics that all runs have; "": there is none.
std::string RuleMetricOfAll(const std::vector<CheckedRun>& runs) {
  for (const server::MetricColumn& column : runs.front().columns) {
    const auto has = [&](const CheckedRun& run) {
      return CheckSweepMetric("metric", column.name, run).ok();
    };
    if (absl::StartsWith(column.name, "rule_") && std::ranges::all_of(runs, has))
      return column.name;
  }
  return "";
}

// The column that chooses where none is named, among those that all runs have.
std::string UsualMetricOfAll(const std::vector<CheckedRun>& runs,
                             ChoosingRows rows = ChoosingRows::kAll) {
  std::string usual = server::UsualMetric([&](const std::string& metric) {
    return std::ranges::all_of(runs, [&](const CheckedRun& run) {
      EvaluableRows there = run.rows;
      if (rows == ChoosingRows::kNoValidation) there.central_val = there.client_val = false;
      return CheckHas("metric", metric, Evaluated(run), run.columns, there).ok();
    });
  });
  const bool has_none = std::ranges::any_of(
      runs, [&](const CheckedRun& run) { return !CheckSweepMetric("metric", usual, run).ok(); });
  std::string own = has_none ? RuleMetricOfAll(runs) : "";
  return own.empty() ? usual : own;
}

// What is reported beside the metric where nothing is named: where validation rows choose, the
// metric of test rows that would choose without them.
std::vector<std::string> UsualReport(const std::string& metric,
                                     const std::vector<CheckedRun>& runs) {
  const auto column = absl::StripPrefix(metric, "best_");
  if (server::RowsOfMetric(column) != MetricRows::kValidation) return {};
  std::string usual = UsualMetricOfAll(runs, ChoosingRows::kNoValidation);
  if (server::RowsOfMetric(usual) != MetricRows::kTest) return {};
  return {std::move(usual)};
}

// Rules that are judged by test rows are not compared by their training rows because one of them
// has no common model.
absl::Status CheckComparable(const std::string& metric, const std::vector<CheckedRun>& runs) {
  if (server::RowsOfMetric(metric) != MetricRows::kTraining) return absl::OkStatus();
  for (const CheckedRun& run : runs) {
    const std::string own = UsualMetricOfAll({run});
    if (server::RowsOfMetric(own) == MetricRows::kTraining) continue;
    for (const CheckedRun& other : runs) {
      if (CheckHas("metric", own, Evaluated(other), other.columns, other.rows).ok()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "no metric of test or validation rows is in all runs: \"", run.config.run.algorithm.name,
          "\" has ", own, ", and \"", other.config.run.algorithm.name,
          "\" has not. evaluation.clients = true with data.client_test_fraction = 0.2 gives "
          "all of them clients_test_accuracy or clients_test_loss; or name a metric"));
    }
  }
  return absl::OkStatus();
}

// "clients_test_accuracy" for "test_accuracy", "best_clients_val_loss" for "best_val_loss"; "": the
// metric is none of the common model's.
std::string OfClients(const std::string& metric) {
  const absl::string_view column = absl::StripPrefix(metric, "best_");
  const bool best = column.size() < metric.size();
  if (!absl::StartsWith(column, "test_") && !absl::StartsWith(column, "val_")) return "";
  return absl::StrCat(best ? "best_" : "", "clients_", column);
}

// The metric that the file names; or that of the clients' rows, where some runs have no common
// model and all of them have that. An error of its own if they have not.
absl::StatusOr<std::string> NamedMetricOfAll(const std::string& named,
                                             const std::vector<CheckedRun>& runs) {
  const auto lacks = [&](const std::string& metric) {
    return [&runs, metric](const CheckedRun& run) {
      return !CheckSweepMetric("metric", metric, run).ok();
    };
  };
  const std::string of_clients = OfClients(named);
  const auto without = std::ranges::find_if(runs, lacks(named));
  // Where no run has it, the usual error says why.
  if (of_clients.empty() || without == runs.end() || std::ranges::all_of(runs, lacks(named)))
    return named;
  if (std::ranges::none_of(runs, lacks(of_clients))) return of_clients;
  return absl::InvalidArgumentError(absl::StrCat(
      "metric \"", named, "\" is not in all runs: \"", without->config.run.algorithm.name,
      "\" has none. evaluation.clients = true with data.client_test_fraction = 0.2 gives all of "
      "them clients_test_accuracy or clients_test_loss; or name another metric"));
}

// A metric of test rows is reported in the round that `metric` chooses: for best_ that is not the
// last one.
std::string ReportName(const std::string& reported, const std::string& metric) {
  const bool of_test = server::RowsOfMetric(reported) == MetricRows::kTest;
  if (!absl::StartsWith(metric, "best_") || !of_test || ChoosesByTestRows(metric)) return reported;
  return AtBest(reported, std::string(absl::StripPrefix(metric, "best_")));
}

}  // namespace

absl::Status ChooseMetrics(const SweepSettings& settings, const std::vector<CheckedRun>& runs,
                           SweepPlan& plan) {
  MACAW_ASSIGN_OR_RETURN(plan.metric, NamedMetricOfAll(settings.metric, runs));
  if (plan.metric.empty()) {
    plan.metric = UsualMetricOfAll(runs);
    MACAW_RETURN_IF_ERROR(CheckComparable(plan.metric, runs));
  }
  plan.higher = HigherMetricIsBetter(plan.metric);
  const std::vector<std::string> report =
      settings.report.empty() ? UsualReport(plan.metric, runs) : settings.report;
  for (const std::string& reported : report)
    plan.report.push_back(ReportName(reported, plan.metric));
  return absl::OkStatus();
}

std::string CommonModelNote(const SweepSettings& settings, const std::vector<CheckedRun>& runs,
                            const SweepPlan& plan) {
  const bool of_common =
      absl::StartsWith(plan.metric, "val_") || absl::StartsWith(plan.metric, "test_");
  const auto personal = std::ranges::find_if(runs, [](const CheckedRun& run) {
    return std::ranges::any_of(run.columns, [](const server::MetricColumn& column) {
      return column.of == server::EvaluatedRows::kGlobal;
    });
  });
  if (!settings.metric.empty() || !of_common || personal == runs.end()) return "";
  return absl::StrCat(
      "metric: ", plan.metric, " decides, which is of the common model, also for \"",
      personal->config.run.algorithm.name,
      "\", whose clients have personal models. To choose by those give clients "
      "rows of their own (data.val_fraction, data.client_test_fraction) and name clients_",
      plan.metric, ".");
}

std::string MetricNote(const SweepSettings& settings, const SweepPlan& plan) {
  if (settings.metric.empty() || settings.metric == plan.metric) return "";
  return absl::StrCat("metric: \"", settings.metric,
                      "\" is of the common model, which some rules of the sweep do not have; \"",
                      plan.metric, "\" is in all runs, and decides.");
}

absl::Status CheckMetricOf(const CheckedRun& run, const SweepPlan& plan) {
  return CheckSweepMetric("metric", plan.metric, run);
}

ReportedColumns::ReportedColumns(const SweepSettings& settings) {
  for (const std::string& column : settings.report) missing_.emplace(column, absl::OkStatus());
}

void ReportedColumns::Look(const CheckedRun& run, const Explain& explain) {
  ++runs_;
  for (auto column = missing_.begin(); column != missing_.end();) {
    absl::Status status = CheckSweepMetric("report", column->first, run);
    if (status.ok()) {
      column = missing_.erase(column);
      continue;
    }
    absl::Status& why = (column++)->second;
    const bool names_another = absl::StrContains(status.message(), kDidYouMean) &&
                               !absl::StrContains(why.message(), kDidYouMean);
    if (why.ok() || names_another) why = explain(std::move(status));
  }
}

absl::Status ReportedColumns::Check() const {
  if (missing_.empty()) return absl::OkStatus();
  const absl::Status& why = missing_.begin()->second;
  if (runs_ == 1) return why;
  return WithKeyError(
      absl::Status(why.code(),
                   absl::StrCat(why.message(), ". No configuration of the sweep has it")),
      KeyErrorOf(why));
}

}  // namespace macaw::cli
