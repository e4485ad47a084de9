// Assumes that all clients and all slots are equal, like round_robin, but gives each slot a run of
// consecutive clients of the cohort (array-split), so that clients with neighbouring data stay
// together.
#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/slots.h"

namespace macaw::scheduler {

Plan UniformScheduler::Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const {
  Plan plan = EmptyPlan(workers, HandOut::kWhole);
  const std::vector<size_t> owners = SlotOwners(workers);
  const size_t clients = cohort.entries.size();
  size_t next = 0;
  for (size_t s = 0; s < owners.size(); ++s) {
    const size_t share = clients / owners.size() + (s < clients % owners.size() ? 1 : 0);
    for (size_t i = 0; i < share; ++i) Append(plan.queues[owners[s]], cohort.entries[next++]);
  }
  plan.reason = absl::StrCat(
      "equally many neighbouring clients to each slot: ", Scene(clients, workers), ".");
  return plan;
}

}  // namespace macaw::scheduler
