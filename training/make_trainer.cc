#include "training/make_trainer.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/logging.h"
#include "core/status.h"
#include "training/eager_trainer.h"
#include "training/fused/fused_trainer.h"

namespace macaw::training {
namespace {

// The fused trainer, and the eager trainer for plans that only LibTorch can carry out (hooks). The
// plan's first stages decide which of them runs, not those that LocalPlan::more adds.
class FusedOrEagerTrainer final : public LocalTrainer {
 public:
  FusedOrEagerTrainer(const TrainerSetup& setup, std::unique_ptr<LocalTrainer> fused)
      : setup_(setup), fused_(std::move(fused)) {}

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override {
    absl::Status fits;
    for (const Stage& stage : plan.stages) fits.Update(fused::Supports(stage));
    if (fits.ok()) return fused_->Run(plan, task);
    if (eager_ == nullptr) {
      Logger("training").Info(absl::StrCat("trainer=eager because \"", fits.message(), "\""));
      MACAW_ASSIGN_OR_RETURN(eager_, MakeEagerTrainer(setup_));
    }
    return eager_->Run(plan, task);
  }
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override {
    return fused_->Evaluate(model, rows, begin, end, batch);
  }
  std::string name() const override { return fused_->name(); }

 private:
  const TrainerSetup setup_;
  const std::unique_ptr<LocalTrainer> fused_;
  std::unique_ptr<LocalTrainer> eager_;  // created by the first plan that needs it
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeEagerTrainer(const TrainerSetup& setup) {
  return EagerTrainer::Make(setup);
}

absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(const TrainerSetup& setup) {
  const std::string& name = setup.local.trainer;
  if (name == "eager") return MakeEagerTrainer(setup);
  if (name != "auto" && name != "fused") {
    return absl::InvalidArgumentError(
        absl::StrCat("local.trainer is \"auto\", \"eager\" or \"fused\", got \"", name, "\""));
  }
  MACAW_ASSIGN_OR_RETURN(const fused::Isa isa, fused::ChooseIsa(setup.instruction_set));
  absl::Status fits = fused::Supports(setup);
  if (fits.ok() && name == "auto") fits = fused::Prefers(setup, isa);
  if (!fits.ok()) {
    if (name == "fused") {
      return absl::InvalidArgumentError(absl::StrCat(
          "local.trainer is \"fused\", but ", fits.message(), ": use \"auto\" or \"eager\""));
    }
    Logger("training").Info(absl::StrCat("trainer=eager because \"", fits.message(), "\""));
    return MakeEagerTrainer(setup);
  }
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<LocalTrainer> fused,
                         fused::FusedTrainer::Make(setup, isa));
  if (name == "fused") return fused;
  return std::make_unique<FusedOrEagerTrainer>(setup, std::move(fused));
}

}  // namespace macaw::training
