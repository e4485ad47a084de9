#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// For server, worker and tests, not for rules.

// A client's local work once it is done: all stages, those that Continue added among them, and what
// came of each.
struct LocalWork {
  training::LocalPlan plan;
  std::vector<training::StageOutcome> outcomes;
};

// What a client half asks of a trainer, before the trainer has done it. One thread at a time.
class PlannedWork {
 public:
  // Asks the client half. All arguments must outlive the work.
  static absl::StatusOr<std::unique_ptr<PlannedWork>> Make(const ClientAlgorithm& algorithm,
                                                           const ClientContext& context,
                                                           Workspace& workspace);
  PlannedWork(const PlannedWork&) = delete;  // the plan refers to it
  PlannedWork& operator=(const PlannedWork&) = delete;

  // For the trainer. It asks the client half for stages to go on with.
  const training::LocalPlan& plan() const { return plan_; }
  // Call once, with what the trainer returned.
  LocalWork Done(std::vector<training::StageOutcome> outcomes) &&;

 private:
  PlannedWork() = default;

  training::LocalPlan plan_;
  std::vector<training::Stage> added_;  // by Continue
};

// Lets `run`, a trainer's Run, do the work of one client.
absl::StatusOr<LocalWork> CarryOut(
    const ClientAlgorithm& algorithm, const ClientContext& context, Workspace& workspace,
    const std::function<
        absl::StatusOr<std::vector<training::StageOutcome>>(const training::LocalPlan&)>& run);

}  // namespace macaw::algorithms
