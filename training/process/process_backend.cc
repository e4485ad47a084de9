// The back end whose trainers hand each turn to a program of the owner's.
#include <optional>
#include <utility>

#include "core/status.h"
#include "training/backends.h"
#include "training/process/process_trainer.h"
#include "training/process/resident.h"

namespace macaw::training {
namespace process {
namespace {

class Process final : public Backend {
 public:
  std::string name() const override { return kProcessBackend; }

  absl::Status Supports(const TrainerSetup& setup) const override {
    const bool gives_rows = setup.backend.program.give_rows;
    if (setup.transform.changes_rows() && !gives_rows) {
      return absl::UnimplementedError(
          "the owner's own program reads its own rows, so data.label_noise and data.concept_shift "
          "do not reach them");
    }
    if (gives_rows && (setup.transform.pad_crop > 0 || setup.transform.flip)) {
      return absl::UnimplementedError(
          "the owner's own program gets whole rows: leave data.augment out, and crop and flip in "
          "the program");
    }
    if (setup.task == TaskKind::kReconstruction && gives_rows) {
      return absl::UnimplementedError(
          "run.task is \"reconstruction\", and workers.give_rows sends rows with labels");
    }
    if (!setup.hooks) return absl::OkStatus();
    return absl::UnimplementedError(
        "the algorithm's local steps have hooks (a loss or a correction of its own), which need "
        "LibTorch");
  }

  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override {
    MACAW_RETURN_IF_ERROR(Supports(setup));
    MACAW_ASSIGN_OR_RETURN(Resident resident, TakeOrStart(setup));
    NumericProfile profile{
        .trainer = kProcessBackend, .instruction_set = "any", .libraries = resident.ready.name};
    if (setup.backend.program.give_rows && !resident.ready.evaluates && !resident.ready.outputs &&
        FusedBackend().Supports(setup).ok()) {  // which evaluates then
      MACAW_ASSIGN_OR_RETURN(const NumericProfile fused, FusedBackend().Profile(setup));
      profile.instruction_set = fused.instruction_set;
    }
    waiting_.Give(std::move(resident));
    return profile;
  }

  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override {
    MACAW_RETURN_IF_ERROR(Supports(setup));
    MACAW_ASSIGN_OR_RETURN(Resident resident, TakeOrStart(setup));
    return std::make_unique<ProcessTrainer>(setup, waiting_, std::move(resident));
  }

  std::string Report() const override { return "the owner's own program, workers.command"; }

 private:
  absl::StatusOr<Resident> TakeOrStart(const TrainerSetup& setup) const {
    std::optional<Resident> waiting = waiting_.Take(setup);
    if (waiting.has_value()) return *std::move(waiting);
    return StartResident(setup);
  }

  mutable WaitingRoom waiting_;
};

}  // namespace
}  // namespace process

const Backend& ProcessBackend() {
  // Never destroyed: a program that waits ends with this process.
  static const auto& backend = *new process::Process;
  return backend;
}

}  // namespace macaw::training
