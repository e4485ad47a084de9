#pragma once

#include <span>
#include <string>
#include <vector>

#include "scheduler/plan.h"

namespace macaw::scheduler {

// What the policies share.

// A plan with an empty queue for each worker.
Plan EmptyPlan(std::span<const WorkerInfo> workers, HandOut hand_out);
// The worker (as an index) of each slot, worker by worker.
std::vector<size_t> SlotOwners(std::span<const WorkerInfo> workers);
// A description such as "100 clients on 4 slots of 2 workers".
std::string Scene(size_t clients, std::span<const WorkerInfo> workers);
// Appends to a worker's queue, and adds to its predicted finish as if its slots shared the work
// evenly.
void Append(WorkerQueue& queue, const CohortEntry& entry);
// Longest client first, each to the slot that would finish it first (placement.h).
void PlaceLongestFirst(const Cohort& cohort, std::span<const WorkerInfo> workers, Plan& plan);

}  // namespace macaw::scheduler
