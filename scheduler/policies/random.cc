// Assumes nothing: clients are in a random order, drawn from seed and round, and an idle slot takes
// the next one (pull). No slot is idle before the end, but a long client may come last.
#include "core/random.h"

#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/slots.h"

namespace macaw::scheduler {

Plan RandomScheduler::Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const {
  Plan plan = EmptyPlan(workers, HandOut::kPull);
  if (SlotOwners(workers).empty()) {
    plan.reason = "no worker can train.";
    return plan;
  }
  plan.common = cohort.entries;
  RandomStream stream({.seed = seed_, .purpose = Purpose::kPlacement, .round = cohort.round});
  stream.Shuffle(std::span(plan.common));
  plan.reason = absl::StrCat("clients in random order, each to the next idle slot: ",
                             Scene(cohort.entries.size(), workers), ".");
  return plan;
}

}  // namespace macaw::scheduler
