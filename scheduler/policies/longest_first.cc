// Assumes that predicted times are right. Longest client first, each to the slot that would finish
// it first (Graham 1969: within 4/3 of optimal on equal slots; Gonzalez, Ibarra and Sahni 1977:
// within 2 on slots of different speed); a worker keeps its queue. Best if predictions are exact.
#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/slots.h"

namespace macaw::scheduler {

Plan LongestFirstScheduler::Assign(const Cohort& cohort,
                                   std::span<const WorkerInfo> workers) const {
  Plan plan = EmptyPlan(workers, HandOut::kWhole);
  if (SlotOwners(workers).empty()) {
    plan.reason = "no worker can train.";
    return plan;
  }
  PlaceLongestFirst(cohort, plan);
  plan.reason = absl::StrCat("longest client first, each to the slot that finishes it first: ",
                             Scene(cohort.entries.size(), workers), ".");
  return plan;
}

}  // namespace macaw::scheduler
