#include "server/early_stopping.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/spelling.h"
#include "core/status.h"
#include "training/api/row_metrics.h"

namespace macaw::server {
namespace {

bool Asks(const RunPlan& run, absl::string_view name) {
  return std::ranges::any_of(training::AskedMetricsOf(run.task),
                             [&](const training::AskedMetric& metric) {
                               return name == metric.name && run.evaluation.metrics.*metric.asked;
                             });
}

// The keys by which these rows would be evaluated and which are not set.
void AddMissing(EvaluatedRows of, const EvaluationConfig& evaluation,
                std::vector<std::string>& missing) {
  const auto needs = [&](bool set, const char* key) {
    if (!set) missing.emplace_back(key);
  };
  const bool tunes = evaluation.fine_tune.steps > 0;
  switch (of) {
    case EvaluatedRows::kCentral:
      return needs(evaluation.central, "evaluation.central");
    case EvaluatedRows::kCentralValidation:
      return;  // data.central_val_fraction, which the plan does not have
    case EvaluatedRows::kTrain:
      return needs(evaluation.train, "evaluation.splits with \"train\"");
    case EvaluatedRows::kTuned:
      needs(evaluation.clients, "evaluation.clients");
      return needs(tunes, "evaluation.fine_tune.steps");
    case EvaluatedRows::kClients:
    case EvaluatedRows::kGlobal:
      return needs(evaluation.clients, "evaluation.clients");
    case EvaluatedRows::kValidation:
      return needs(evaluation.validation, "evaluation.splits with \"validation\"");
    case EvaluatedRows::kHeldoutTuned:
      needs(evaluation.heldout, "evaluation.heldout");
      return needs(tunes, "evaluation.fine_tune.steps");
    case EvaluatedRows::kHeldout:
      return needs(evaluation.heldout, "evaluation.heldout");
  }
}

// The keys without which the column has no values.
std::vector<std::string> MissingOf(const MetricColumn& column, const RunPlan& run) {
  std::vector<std::string> missing;
  if (column.of.has_value()) AddMissing(*column.of, run.evaluation, missing);
  if (column.metric != nullptr && !Asks(run, column.metric))
    missing.push_back(absl::StrCat("evaluation.metrics with \"", column.metric, "\""));
  return missing;
}

absl::Status NoSuchColumn(const std::string& key, const std::string& metric, const RunPlan& run,
                          const std::vector<MetricColumn>& columns) {
  std::vector<std::string> all, totals;
  std::string statistic, of_classes;
  for (const MetricColumn& column : columns) {
    if (!column.never.empty()) continue;
    all.push_back(column.name);
    if (!MissingOf(column, run).empty()) continue;
    if (!column.statistic && column.metric == nullptr) totals.push_back(column.name);
    if (column.statistic && column.metric == nullptr) statistic = column.name;
    if (!column.statistic && column.metric != nullptr) of_classes = column.name;
  }
  const std::string near = NearestWord(metric, all);
  return absl::InvalidArgumentError(absl::StrCat(
      key, " is \"", metric, "\", and this run has no such column",
      near.empty() ? "." : absl::StrCat("; did you mean \"", near, "\"?"), " It has ",
      absl::StrJoin(totals, ", "),
      statistic.empty() ? "" : "; and statistics over clients, such as ", statistic,
      of_classes.empty() ? "" : "; and with evaluation.metrics columns such as ", of_classes));
}

// The metric of a column of a group (evaluation.groups), whose name may have any words:
// "_accuracy" of "clients_test_group_mae_loss_accuracy". Any other column: the whole name.
std::string WithoutGroup(const std::string& column) {
  const std::string start = "clients_test_group_";
  const size_t place = column.find(start);
  if (place == std::string::npos) return column;
  const std::string rest = column.substr(place + start.size());
  const size_t last = rest.rfind('_');
  return absl::StartsWith(rest, "gap_") || last == std::string::npos ? column : rest.substr(last);
}

// Whether the values of the column are shares, from 0 to 1.
bool IsShare(const std::string& column) {
  if (absl::StartsWith(column, "rule_")) return false;  // a rule's own, of any range
  constexpr absl::string_view kShares[] = {"accuracy", "precision", "recall", "f1", "auc", "top5"};
  const std::vector<std::string> words = absl::StrSplit(WithoutGroup(column), '_');
  return std::ranges::any_of(words, [&](const std::string& word) {
    return std::ranges::find(kShares, word) != std::end(kShares);
  });
}

}  // namespace

bool HigherIsBetter(const std::string& column) {
  const std::string metric = WithoutGroup(column);
  // How much clients differ.
  if (absl::EndsWith(metric, "_std") || absl::EndsWith(metric, "_gini")) return false;
  if (absl::EndsWith(metric, "_missing") || metric == "left_out" || metric == "rule_thrown_away")
    return false;
  if (metric.find("clients_test_group_gap_") != std::string::npos) return false;
  if (metric.find("bytes_") != std::string::npos || metric == kBackdoorSuccess) return false;
  if (metric.find("virtual_seconds") != std::string::npos || metric == "late" ||
      metric == "staleness")
    return false;
  if (absl::EndsWith(metric, "_error")) return false;  // rule_error, rule_update_error
  constexpr const char* kFalling[] = {"loss", "mae",     "objective", "perplexity",
                                      "_ece", "inertia", "drift",     "penalty"};
  return std::ranges::none_of(
      kFalling, [&](const char* word) { return metric.find(word) != std::string::npos; });
}

absl::Status CheckMetric(const std::string& key, const std::string& metric, const RunPlan& run,
                         const std::vector<MetricColumn>& columns) {
  const auto column = std::ranges::find(columns, metric, &MetricColumn::name);
  if (column == columns.end()) return NoSuchColumn(key, metric, run, columns);
  if (!column->never.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " \"", metric, "\" ", column->never));
  }
  if (run.evaluation.every == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " \"", metric,
                     "\" needs evaluations during the run, and evaluation.every = 0 evaluates the "
                     "last round's model alone: set evaluation.every to 1 or more"));
  }
  const std::vector<std::string> missing = MissingOf(*column, run);
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, " \"", metric, "\" is never evaluated: set ",
                                                 absl::StrJoin(missing, " and ")));
}

absl::Status CheckStopRule(const StopRule& rule, const RunPlan& run,
                           const std::vector<MetricColumn>& columns) {
  if (!rule.active()) {
    if (!rule.at_least.has_value() && rule.patience == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "run.stop needs a metric beside at_least or patience: a column of metrics.jsonl");
  }
  MACAW_RETURN_IF_ERROR(CheckMetric("run.stop.metric", rule.metric, run, columns));
  if (!rule.at_least.has_value() && rule.patience == 0) {
    return absl::InvalidArgumentError("run.stop needs at_least, patience, or both");
  }
  if (rule.at_least.has_value() && *rule.at_least > 1 && HigherIsBetter(rule.metric) &&
      IsShare(rule.metric)) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.stop.at_least is ", *rule.at_least, ", and ", rule.metric,
                     " never reaches that: it is a share from 0 to 1, so 97 % is 0.97"));
  }
  return absl::OkStatus();
}

absl::Status CheckRunBudget(const RunBudget& budget, const RunPlan& run) {
  if (budget.virtual_seconds.has_value() && !run.devices.on()) {
    return absl::InvalidArgumentError(
        "run.budget.virtual_seconds needs [devices], whose clock it reads");
  }
  if (budget.on() && run.evaluation.every == 0) {
    return absl::InvalidArgumentError(
        "run.budget is looked at where a round is evaluated, and evaluation.every = 0 evaluates "
        "the last round's model alone: set evaluation.every to 1 or more");
  }
  return absl::OkStatus();
}

void EarlyStopping::Spend(const std::function<std::optional<double>(const char* column)>& column) {
  for (const RunBudget::Limit& limit : RunBudget::Limits())
    spent_[limit.column] += column(limit.column).value_or(0);
}

std::optional<std::string> EarlyStopping::Spent(uint32_t round) const {
  for (const auto& [column, limit] : RunBudget::Limits()) {
    const std::optional<double>& most = budget_.*limit;
    const auto spent = spent_.find(column);
    if (most.has_value() && spent != spent_.end() && spent->second >= *most) {
      return absl::StrFormat("%s of all rounds are %.10g after round %d (run.budget.%s = %.10g)",
                             column, spent->second, round, column, *most);
    }
  }
  return std::nullopt;
}

std::optional<std::string> EarlyStopping::Observe(uint32_t round, double value) {
  const bool higher = HigherIsBetter(rule_.metric);
  const auto better = [&](double a, double b) { return higher ? a > b : a < b; };
  const bool number = !std::isnan(value);  // a diverged run has not reached `at_least`
  const bool progress = number && (!best_.has_value() || better(value, *best_));
  if (progress) {  // also of a value that ends the run: its model is the best one
    best_ = value;
    best_round_ = round;
    without_progress_ = 0;
  }
  if (number && rule_.at_least.has_value() && !better(*rule_.at_least, value)) {
    return absl::StrCat(rule_.metric, " reached ", value, " in round ", round, " (asked for ",
                        *rule_.at_least, ")");
  }
  // Numbers may still come where there was none: there is nothing yet on which to improve.
  if (progress || !best_.has_value()) return std::nullopt;
  if (++without_progress_; rule_.patience > 0 && without_progress_ >= rule_.patience) {
    return absl::StrCat(rule_.metric, " has not improved on ", *best_, " of round ", best_round_,
                        " in ", without_progress_, " evaluations");
  }
  return std::nullopt;
}

}  // namespace macaw::server
