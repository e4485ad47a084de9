// Assumes that all clients and all slots are equal: client i goes to slot i modulo the number of
// slots, and a worker keeps its queue. The simplest policy that works; for comparison.
#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/slots.h"

namespace macaw::scheduler {

Plan RoundRobinScheduler::Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const {
  Plan plan = EmptyPlan(workers, HandOut::kWhole);
  const std::vector<size_t> owners = SlotOwners(workers);
  for (size_t i = 0; i < cohort.entries.size() && !owners.empty(); ++i)
    Append(plan.queues[owners[i % owners.size()]], cohort.entries[i]);
  plan.reason = absl::StrCat("clients in turn to the slots, whatever they cost: ",
                             Scene(cohort.entries.size(), workers), ".");
  return plan;
}

}  // namespace macaw::scheduler
