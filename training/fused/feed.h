#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "data/gather.h"
#include "plan/task.h"
#include "training/api/trainer.h"
#include "training/fused/block.h"
#include "training/fused/kernels.h"
#include "training/objective.h"

namespace macaw::training::fused {

// Writes chosen rows of a client, transformed as the run says, to the input of a program's first
// block, and their labels. One thread at a time. `kernels` must outlive it.
class Feed {
 public:
  // `in`: the first block's input.
  Feed(const TrainerSetup& setup, const Kernels& kernels, const Shape& in);

  // Errors say in what the rows do not fit the model.
  absl::Status Check(const data::Rows& rows) const;
  // Writes the rows at `positions` to `in`, as the first block takes them. `augment` is null
  // outside training. Errors name a label that is out of range.
  absl::Status Load(const data::Rows& rows, std::span<const uint32_t> positions,
                    const data::AugmentKey* augment, const Objective& objective, float* in);
  // Prefetches the rows that come next.
  void Expect(const data::Rows& rows, std::span<const uint32_t> positions) const;
  Labels<float> labels() const { return {.classes = classes_, .targets = targets_}; }

 private:
  // The targets of a reconstruction.
  void TakeInputs(size_t rows, const float* in);

  const TaskKind task_;
  const data::FeatureType feature_type_;
  const data::BatchGather gather_;
  const Kernels& kernels_;
  // A row is one line of floats, or one for each position; all lines are RoundUp(width_) apart.
  const size_t lines_, width_;
  WorkCounter* const work_;
  const bool as_stored_;  // stored floats are copied unchanged, also in training
  std::vector<int64_t> classes_;
  std::vector<float> targets_;
  std::vector<const std::byte*> addresses_;
};

}  // namespace macaw::training::fused
