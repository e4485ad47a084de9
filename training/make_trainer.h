#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "training/api/trainer.h"

// The trainers there are. Their users see LocalTrainer alone (training/api/trainer.h).
namespace macaw::training {

// eager_trainer.h: any model, by LibTorch with one intra-op thread.
absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeEagerTrainer(const TrainerSetup& setup);

// The trainer that TrainerSetup::local.trainer names. "fused": flat CPU kernels for float32 models
// of common layers; an error if the run needs something else. "auto": fused where possible; eager
// for the other models, and for single plans that only LibTorch can carry out.
absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(const TrainerSetup& setup);

// The profile of the trainer that MakeTrainer returns in this process. For "auto" it includes the
// eager trainer's, because some plans may run there.
NumericProfile ProfileOf(const TrainerSetup& setup);
// The profile of this process's eager trainer: LibTorch's version, the instruction set of its
// kernels, and libc.
NumericProfile EagerProfile();

}  // namespace macaw::training
