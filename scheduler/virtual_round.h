#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "scheduler/dispatch.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// A round in virtual time, without training: the plan is handed out by the real DispatchQueue to
// workers that ask as the real ones do (as soon as their own queue runs low, or only with a slot
// idle where they were told so), and clients take as long as `seconds` says. For tests and
// bench/scheduler; a function of its inputs.

struct VirtualWorker {
  WorkerId worker;
  uint32_t slots = 1;
  double joins = 0;            // virtual seconds; 0: there from the start
  std::optional<double> dies;  // everything it was given goes back to the queue
};

struct VirtualOptions {
  // Of a client on a slot (of a worker), when it begins at this virtual time.
  std::function<double(const CohortEntry& entry, WorkerId worker, uint32_t slot, double start)>
      seconds;
  double latency = 0;        // from asking to having the answer
  double notice = 0;         // from a worker's death to its clients coming back
  double least_seconds = 0;  // Ask::least_seconds
};

struct VirtualTurn {  // of one client on one slot
  CohortEntry entry;
  WorkerId worker;
  uint32_t slot = 0;
  double start = 0, end = 0;
};
struct VirtualOutcome {
  double makespan = 0;             // when the last client that counts ends
  std::vector<VirtualTurn> turns;  // that count, in order of their ends
  uint64_t asks = 0;
  uint64_t repeated = 0;  // clients that had to be trained again
  uint64_t left = 0;      // clients that nobody trained: all workers are gone
};

VirtualOutcome RunVirtualRound(const Plan& plan, const std::vector<VirtualWorker>& workers,
                               const VirtualOptions& options);

}  // namespace macaw::scheduler
