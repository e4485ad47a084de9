#pragma once

#include <span>
#include <string>
#include <vector>

#include "scheduler/plan.h"

namespace macaw::scheduler {

// What the policies share.

// A plan with an empty queue for each worker. One about which nothing is known is taken for the
// mean of the others (GuessedCosts), so that costs are all in seconds or all in rows.
Plan EmptyPlan(std::span<const WorkerInfo> workers, HandOut hand_out);
// The worker (as an index) of each slot, worker by worker.
std::vector<size_t> SlotOwners(std::span<const WorkerInfo> workers);
// A description such as "100 clients on 4 slots of 2 workers".
std::string Scene(size_t clients, std::span<const WorkerInfo> workers);
// Appends to a worker's queue, and adds to its predicted finish as if its slots shared the work
// evenly.
void Append(WorkerQueue& queue, const CohortEntry& entry);
// Longest client first, each to the slot of the plan's workers that would finish it first
// (placement.h). A worker that has reported no times, where others have, gets at least one client.
void PlaceLongestFirst(const Cohort& cohort, Plan& plan);

}  // namespace macaw::scheduler
