#include "cli/sweep/metric.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "cli/compare/text.h"
#include "cli/simulate/result.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

bool IsMeasured(const std::string& metric) {
  return metric == "seconds" || metric == "rounds_per_second" ||
         absl::StartsWith(metric, "rounds_to_");
}

// The plan as far as a sweep's metric is concerned: without evaluations during the run there is
// still one after the last round.
RunPlan Evaluated(const CheckedRun& run) {
  RunPlan plan = run.config.run;
  if (plan.evaluation.every == 0) plan.evaluation.every = 1;
  return plan;
}

absl::Status CheckSweepMetric(const std::string& key, const std::string& metric,
                              const CheckedRun& run) {
  if (IsMeasured(metric)) return absl::OkStatus();
  return CheckHas(key, std::string(absl::StripPrefix(metric, "best_")), Evaluated(run), run.columns,
                  run.rows);
}

// What is reported beside the metric where nothing is named: where validation rows choose, the
// metric of test rows that would choose without them.
std::vector<std::string> UsualReport(const std::string& metric, const CheckedRun& run) {
  const auto column = absl::StripPrefix(metric, "best_");
  if (server::RowsOfMetric(column) != server::MetricRows::kValidation) return {};
  EvaluableRows without = run.rows;
  without.central_val = without.client_val = false;
  std::string usual = UsualMetricOf(Evaluated(run), run.columns, without);
  if (server::RowsOfMetric(usual) != server::MetricRows::kTest) return {};
  return {std::move(usual)};
}

// A metric of test rows is reported in the round that `metric` chooses: for best_ that is not the
// last one.
std::string ReportName(const std::string& reported, const std::string& metric) {
  const bool of_test = server::RowsOfMetric(reported) == server::MetricRows::kTest;
  if (!absl::StartsWith(metric, "best_") || !of_test || ChoosesByTestRows(metric)) return reported;
  return AtBest(reported, std::string(absl::StripPrefix(metric, "best_")));
}

}  // namespace

void ChooseMetrics(const SweepSettings& settings, const CheckedRun& run, SweepPlan& plan) {
  plan.metric = settings.metric;
  if (plan.metric.empty()) plan.metric = UsualMetricOf(Evaluated(run), run.columns, run.rows);
  plan.higher = HigherMetricIsBetter(plan.metric);
  const std::vector<std::string> report =
      settings.report.empty() ? UsualReport(plan.metric, run) : settings.report;
  for (const std::string& reported : report)
    plan.report.push_back(ReportName(reported, plan.metric));
}

absl::Status CheckMetrics(const SweepSettings& settings, const CheckedRun& run,
                          const SweepPlan& plan) {
  absl::Status status = CheckSweepMetric("metric", plan.metric, run);
  for (const std::string& reported : settings.report)
    status.Update(CheckSweepMetric("report", reported, run));
  return status;
}

}  // namespace macaw::cli
