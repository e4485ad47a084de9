#include "algorithms/around/local_work.h"

#include <utility>

#include "core/status.h"

namespace macaw::algorithms {

absl::StatusOr<std::unique_ptr<PlannedWork>> PlannedWork::Make(const ClientAlgorithm& algorithm,
                                                               const ClientContext& context,
                                                               Workspace& workspace) {
  auto work = std::unique_ptr<PlannedWork>(new PlannedWork());
  MACAW_ASSIGN_OR_RETURN(work->plan_, algorithm.Prepare(context, workspace));
  work->plan_.more = [&algorithm, &context, &workspace,
                      &added = work->added_](std::span<const training::StageOutcome> outcomes)
      -> absl::StatusOr<std::vector<training::Stage>> {
    MACAW_ASSIGN_OR_RETURN(training::LocalPlan next,
                           algorithm.Continue(context, outcomes, workspace));
    added.insert(added.end(), next.stages.begin(), next.stages.end());
    return std::move(next.stages);
  };
  return work;
}

LocalWork PlannedWork::Done(std::vector<training::StageOutcome> outcomes) && {
  LocalWork work{.plan = std::move(plan_), .outcomes = std::move(outcomes)};
  work.plan.more = nullptr;
  for (training::Stage& stage : added_) work.plan.stages.push_back(std::move(stage));
  return work;
}

absl::StatusOr<LocalWork> CarryOut(
    const ClientAlgorithm& algorithm, const ClientContext& context, Workspace& workspace,
    const std::function<
        absl::StatusOr<std::vector<training::StageOutcome>>(const training::LocalPlan&)>& run) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<PlannedWork> work,
                         PlannedWork::Make(algorithm, context, workspace));
  MACAW_ASSIGN_OR_RETURN(std::vector<training::StageOutcome> outcomes, run(work->plan()));
  return std::move(*work).Done(std::move(outcomes));
}

}  // namespace macaw::algorithms
