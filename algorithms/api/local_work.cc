#include "algorithms/api/local_work.h"

#include <utility>

#include "core/status.h"

namespace macaw::algorithms {

absl::StatusOr<LocalWork> CarryOut(
    const ClientAlgorithm& algorithm, const ClientContext& context, Workspace& workspace,
    const std::function<
        absl::StatusOr<std::vector<training::StageOutcome>>(const training::LocalPlan&)>& run) {
  LocalWork work;
  MACAW_ASSIGN_OR_RETURN(work.plan, algorithm.Prepare(context, workspace));
  std::vector<training::Stage> added;
  work.plan.more = [&](std::span<const training::StageOutcome> outcomes)
      -> absl::StatusOr<std::vector<training::Stage>> {
    MACAW_ASSIGN_OR_RETURN(training::LocalPlan next,
                           algorithm.Continue(context, outcomes, workspace));
    added.insert(added.end(), next.stages.begin(), next.stages.end());
    return std::move(next.stages);
  };
  MACAW_ASSIGN_OR_RETURN(work.outcomes, run(work.plan));
  work.plan.more = nullptr;
  for (training::Stage& stage : added) work.plan.stages.push_back(std::move(stage));
  return work;
}

}  // namespace macaw::algorithms
