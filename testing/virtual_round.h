#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "scheduler/dispatch.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// A round in virtual time, without training. The real DispatchQueue hands out the plan, workers
// request work as the real ones do (ahead, or only with an idle slot if they were told so), and a
// client takes as long as `seconds` says. For tests and bench/scheduler; a function of its inputs.

struct VirtualWorker {
  WorkerId worker;
  uint32_t slots = 1;
  double joins = 0;            // virtual seconds; 0: present from the start
  std::optional<double> dies;  // everything it was given then goes back to the queue
};

struct VirtualOptions {
  // The duration of a client on a slot of a worker that begins at this virtual time.
  std::function<double(const CohortEntry& entry, WorkerId worker, uint32_t slot, double start)>
      seconds;
  double latency = 0;        // from a request to its answer
  double notice = 0;         // from a worker's death until its clients are back in the queue
  double least_seconds = 0;  // Ask::least_seconds
};

struct VirtualTurn {  // one client's turn on a slot
  CohortEntry entry;
  WorkerId worker;
  uint32_t slot = 0;
  double start = 0, end = 0;
};
struct VirtualOutcome {
  double makespan = 0;             // when the last counted turn ends
  std::vector<VirtualTurn> turns;  // the counted turns, ordered by their ends
  uint64_t asks = 0;
  uint64_t repeated = 0;  // turns that had to be repeated
  uint64_t left = 0;      // clients that nobody trained because all workers are gone
};

VirtualOutcome RunVirtualRound(const Plan& plan, const std::vector<VirtualWorker>& workers,
                               const VirtualOptions& options);

}  // namespace macaw::scheduler
