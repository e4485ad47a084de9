#include "absl/strings/str_cat.h"
#include "training/eager_trainer.h"

namespace macaw::training {

absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeEagerTrainer(const TrainerSetup& setup) {
  return EagerTrainer::Make(setup);
}

absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(const TrainerSetup& setup) {
  const std::string& name = setup.local.trainer;
  if (name == "auto" || name == "eager") return MakeEagerTrainer(setup);
  return absl::InvalidArgumentError(
      absl::StrCat("local.trainer is \"auto\" or \"eager\", got \"", name, "\""));
}

}  // namespace macaw::training
