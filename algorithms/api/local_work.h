#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// A client's local work once it is done: all stages, those that Continue added among them, and what
// came of each.
struct LocalWork {
  training::LocalPlan plan;
  std::vector<training::StageOutcome> outcomes;
};

// Asks the client half what to do and lets `run`, a trainer's Run, do it. For server, worker and
// tests, not for rules.
absl::StatusOr<LocalWork> CarryOut(
    const ClientAlgorithm& algorithm, const ClientContext& context, Workspace& workspace,
    const std::function<
        absl::StatusOr<std::vector<training::StageOutcome>>(const training::LocalPlan&)>& run);

}  // namespace macaw::algorithms
