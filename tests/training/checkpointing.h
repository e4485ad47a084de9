#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/training/testing.h"

namespace macaw::training {

// Trainers of LibTorch with and without local.checkpoint.
inline std::unique_ptr<LocalTrainer> TrainerWith(bool checkpoint, const models::ModelSpec& spec,
                                                 TaskKind task, data::FeatureType type,
                                                 const std::string& precision = "full") {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.feature_type = type;
  setup.dtype = spec.layout->dtype();
  setup.backend = TorchChoice();
  setup.local.checkpoint = checkpoint;
  setup.local.precision = precision;
  absl::StatusOr<std::unique_ptr<LocalTrainer>> trainer = TorchBackend().MakeTrainer(setup);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

}  // namespace macaw::training
