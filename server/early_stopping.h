#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "server/coordinator.h"

namespace macaw::server {

// Decides when a run has gone far enough: fed each evaluated value of the rule's metric, in round
// order.
class EarlyStopping {
 public:
  explicit EarlyStopping(const StopRule& rule) : rule_(rule) {}
  // Why the run should stop now, if it should.
  std::optional<std::string> Observe(uint32_t round, double value);

 private:
  StopRule rule_;
  std::optional<double> best_;
  uint32_t best_round_ = 0;
  uint32_t without_progress_ = 0;
};

// Larger is better for every metric but losses and errors.
bool HigherIsBetter(const std::string& metric);

// An error lists the columns that the task's rows have.
absl::Status CheckStopRule(const StopRule& rule, const RunPlan& run);

}  // namespace macaw::server
