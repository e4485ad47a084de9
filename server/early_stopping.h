#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "server/coordinator.h"

namespace macaw::server {

// Decides when a run stops early. Observe must get each evaluated value of the rule's metric, in
// round order. One thread.
class EarlyStopping {
 public:
  explicit EarlyStopping(const StopRule& rule) : rule_(rule) {}
  // Returns the reason if the run should stop now.
  std::optional<std::string> Observe(uint32_t round, double value);

 private:
  StopRule rule_;
  std::optional<double> best_;
  uint32_t best_round_ = 0;
  uint32_t without_progress_ = 0;
};

// True for every metric except losses and errors.
bool HigherIsBetter(const std::string& metric);

// Returns an error if the rule's metric is not a column of the task's rows; the error lists the
// columns.
absl::Status CheckStopRule(const StopRule& rule, const RunPlan& run);

}  // namespace macaw::server
