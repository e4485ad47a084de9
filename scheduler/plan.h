#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "scheduler/cohort.h"
#include "scheduler/cost.h"

namespace macaw::scheduler {

// A worker as the planner sees it.
struct WorkerInfo {
  WorkerId worker;
  uint32_t slots = 1;
  Costs costs;  // of a client on one of its slots (Estimator::CostsOf)
};

// How a plan is handed out (dispatch.h).
enum class HandOut : uint8_t {
  kWhole,   // a worker gets its queue at once and keeps it; see Plan::uncollected
  kPull,    // one common queue; an idle slot takes the next client
  kGuided,  // queues in shrinking pieces; what is not handed out moves to whoever ends it first
};

// Who runs where: a queue per worker in the order to train, and a sentence that says why.
struct WorkerQueue {
  WorkerInfo worker;
  std::vector<CohortEntry> queue;
  double finish = 0;  // predicted, in the unit of the costs
};
struct Plan {
  std::vector<WorkerQueue> queues;
  HandOut hand_out = HandOut::kGuided;
  std::vector<CohortEntry> common;  // kPull: everybody, in the order to take
  // kWhole: the seconds for which a queue waits for its worker to ask. Then others may take it.
  double uncollected = 60;
  std::string reason;
};

// Pure: no clock, no I/O, no randomness but the run's seed. Time decides placement and never the
// result. A policy is one file of policies/, which opens with what it assumes.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Every client once; with no slot at all the plan holds none.
  virtual Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const = 0;
};

struct SchedulerOptions {
  std::string policy = "planned_stealing";  // a name of SchedulingPolicies
  uint64_t seed = 0;                        // of policy "random"
};
// Errors name the policies there are.
absl::StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(const SchedulerOptions& options);

// A line per policy, for people.
std::vector<std::pair<std::string, std::string>> SchedulingPolicies();

}  // namespace macaw::scheduler
