#include "server/early_stopping.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "training/api/metrics.h"

namespace macaw::server {

bool HigherIsBetter(const std::string& metric) {
  return metric.find("loss") == std::string::npos && metric.find("mae") == std::string::npos &&
         metric.find("objective") == std::string::npos;
}

absl::Status CheckStopRule(const StopRule& rule, const RunPlan& run) {
  if (!rule.active()) return absl::OkStatus();
  std::vector<std::string> columns;
  for (const training::MetricRatio& ratio : training::SchemaFor(run.task).ratios) {
    columns.push_back("test_" + ratio.name);
    columns.push_back("clients_test_" + ratio.name);
    columns.push_back("clients_train_" + ratio.name);
  }
  columns.push_back("train_objective");
  if (std::find(columns.begin(), columns.end(), rule.metric) == columns.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.stop.metric is \"", rule.metric,
                     "\"; a run can be stopped by: ", absl::StrJoin(columns, ", ")));
  }
  const bool train = rule.metric.find("train") != std::string::npos;
  const bool clients = !train && rule.metric.starts_with("clients_");
  const EvaluationConfig& evaluation = run.evaluation;
  const bool asked = train ? evaluation.train : clients ? evaluation.clients : evaluation.central;
  if (evaluation.every == 0 || !asked) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.stop.metric \"", rule.metric,
                     "\" is never evaluated: set evaluation.every and evaluation.",
                     train     ? "splits with \"train\""
                     : clients ? "clients"
                               : "central"));
  }
  if (!rule.at_least.has_value() && rule.patience == 0) {
    return absl::InvalidArgumentError("run.stop needs at_least, patience, or both");
  }
  return absl::OkStatus();
}

std::optional<std::string> EarlyStopping::Observe(uint32_t round, double value) {
  const bool higher = HigherIsBetter(rule_.metric);
  const auto better = [&](double a, double b) { return higher ? a > b : a < b; };
  const bool number = !std::isnan(value);  // a diverged run has not reached `at_least`
  if (number && rule_.at_least.has_value() && !better(*rule_.at_least, value)) {
    return absl::StrCat(rule_.metric, " reached ", value, " in round ", round, " (asked for ",
                        *rule_.at_least, ")");
  }
  if (number && (!best_.has_value() || better(value, *best_))) {
    best_ = value;
    best_round_ = round;
    without_progress_ = 0;
  } else if (++without_progress_; rule_.patience > 0 && without_progress_ >= rule_.patience) {
    return absl::StrCat(rule_.metric, " has not improved on ", best_.value_or(std::nan("")),
                        " of round ", best_round_, " in ", without_progress_, " evaluations");
  }
  return std::nullopt;
}

}  // namespace macaw::server
