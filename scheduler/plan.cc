#include "scheduler/plan.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/policies/policies.h"

namespace macaw::scheduler {

std::vector<std::pair<std::string, std::string>> SchedulingPolicies() {
  return {
      {"planned_stealing", "longest client first, planned anew as slots report back (the default)"},
      {"longest_first", "longest client first, each to the slot that finishes it first"},
      {"random", "clients in random order, each to the next idle slot"},
      {"round_robin", "clients in turn to the slots"},
      {"uniform", "equally many neighbouring clients to each slot"}};
}

absl::StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(const SchedulerOptions& options) {
  if (options.policy == "planned_stealing") return std::make_unique<PlannedStealingScheduler>();
  if (options.policy == "longest_first") return std::make_unique<LongestFirstScheduler>();
  if (options.policy == "random") return std::make_unique<RandomScheduler>(options.seed);
  if (options.policy == "round_robin") return std::make_unique<RoundRobinScheduler>();
  if (options.policy == "uniform") return std::make_unique<UniformScheduler>();
  return absl::InvalidArgumentError(absl::StrCat(
      "scheduler.policy is \"", options.policy, "\"; known: ",
      absl::StrJoin(SchedulingPolicies(), ", ",
                    [](std::string* out, const auto& policy) { out->append(policy.first); })));
}

}  // namespace macaw::scheduler
