#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "server/coordinator.h"
#include "server/metrics.h"

namespace macaw::server {

// Decides when a run stops early. One thread.
class EarlyStopping {
 public:
  explicit EarlyStopping(const StopRule& rule, const RunBudget& budget = {})
      : rule_(rule), budget_(budget) {}
  // Adds what a round took: for each round once, in round order. `column`: the value of a column of
  // its row, if it has it.
  void Spend(const std::function<std::optional<double>(const char* column)>& column);
  // Returns the reason if the rounds so far have spent the budget.
  std::optional<std::string> Spent(uint32_t round) const;
  // Must get the rule's metric of every round for which evaluation.every asks, and of the last, in
  // round order.
  // Returns the reason if the run should stop now.
  std::optional<std::string> Observe(uint32_t round, double value);
  // The round of the best value so far; 0: there is none.
  uint32_t best_round() const { return best_round_; }

 private:
  StopRule rule_;
  RunBudget budget_;
  std::map<std::string, double> spent_;  // by column
  std::optional<double> best_;
  uint32_t best_round_ = 0;
  uint32_t without_progress_ = 0;
};

// True for every column except losses, errors and costs, by their names, the names of groups
// (evaluation.groups) left aside (docs/guides/runs.md).
bool HigherIsBetter(const std::string& metric);

// Returns an error unless the run will have the column `metric` (the error lists those that it will
// have and names the most similar one), with values, and evaluate it. `key`: what names the metric.
absl::Status CheckMetric(const std::string& key, const std::string& metric, const RunPlan& run,
                         const std::vector<MetricColumn>& columns);

// Returns an error if the rule can never end the run: if CheckMetric refuses its metric, it has no
// limit, or its metric never reaches the limit.
absl::Status CheckStopRule(const StopRule& rule, const RunPlan& run,
                           const std::vector<MetricColumn>& columns);

// Returns an error if the budget can never end the run.
absl::Status CheckRunBudget(const RunBudget& budget, const RunPlan& run);

}  // namespace macaw::server
