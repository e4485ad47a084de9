#include "training/sliced_trainer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::training {

absl::StatusOr<LocalTrainer*> SlicedTrainer::Of(const models::Width& width) {
  if (width.whole()) return whole_.get();
  const auto found = std::ranges::find(narrow_, width, &Narrow::width);
  if (found != narrow_.end()) return found->trainer.get();
  TrainerSetup setup = setup_;
  MACAW_ASSIGN_OR_RETURN(setup.spec, models::SliceOf(setup_.spec, width));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<LocalTrainer> trainer, backend_.MakeTrainer(setup));
  return narrow_.emplace_back(Narrow{width, std::move(trainer)}).trainer.get();
}

TurnOutcome SlicedTrainer::Run(const LocalPlan& plan, const ClientTask& task) {
  const models::Width width = plan.stages.empty() ? models::Width() : plan.stages.front().width;
  for (const Stage& stage : plan.stages) {
    if (stage.width == width) continue;
    return absl::InternalError(absl::StrCat("client ", task.client.value,
                                            ": its stages are of models of different widths"));
  }
  MACAW_ASSIGN_OR_RETURN(LocalTrainer* const trainer, Of(width));
  return trainer->Run(plan, task);
}

}  // namespace macaw::training
