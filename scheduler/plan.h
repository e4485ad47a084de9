#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// A worker as the planner sees it.
struct WorkerInfo {
  WorkerId worker;
  uint32_t slots = 1;
  double speed = 1;  // relative; 1 until an estimator knows better
};

// Who runs where: a queue per worker in the order to train, and a sentence that says why.
struct WorkerQueue {
  WorkerInfo worker;
  std::vector<CohortEntry> queue;
  double finish = 0;  // predicted, in load per unit of speed
};
struct Plan {
  std::vector<WorkerQueue> queues;
  std::string reason;
};

// Pure: no clock, no I/O, no randomness. Time decides placement and never the result.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const = 0;
};

// Longest client first, each to the slot that would finish it earliest (Graham 1969: within 4/3 of
// optimal on equal slots). O(n log n + n log slots) with a heap. Assumes that loads are
// proportional to time.
class LongestFirstScheduler final : public Scheduler {
 public:
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;
};

}  // namespace macaw::scheduler
