#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "plan/run_plan.h"
#include "server/config.h"

namespace macaw::server {

// How many rounds a stop rule on rule_epsilon leaves a private run. Such a rule is a budget: the
// run ends before the round that would exceed it, however seldom the model is evaluated.
struct Budget {
  uint32_t rounds = 0;  // fewer than the run's
  std::string reason;   // for summary.json: "rule_epsilon is 7.96 after round 41 and would be …"
};
// nullopt: the rule is none of a budget, or all rounds of the run lie within it. An error if not
// even the first round does.
absl::StatusOr<std::optional<Budget>> BudgetOf(const StopRule& rule, const RunPlan& run);

// ε of so many rounds of a private run, for run.privacy.delta, by the accountant's tighter bound
// (algorithms/around/accountant.h); nullopt: the run is not private, or its population not known.
// Takes up to some seconds.
std::optional<double> EpsilonOf(const RunPlan& run, uint32_t rounds);

}  // namespace macaw::server
