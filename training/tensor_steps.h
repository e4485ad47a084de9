#pragma once

#include <cstdint>
#include <vector>

#include "core/vector.h"
#include "training/local_sgd.h"

namespace macaw::training {

// Elements whose next step is the same one of theirs: `step` counts from 1.
struct StepPieces {
  uint64_t step = 0;
  Pieces pieces;
};

// All of them, in ascending order.
Pieces PiecesOf(const std::vector<StepPieces>& moving);

// Which tensors take a step. As in PyTorch, a tensor without a gradient takes none: it is neither
// corrected nor decayed, its momentum stays, and Adam's steps are counted for each tensor. One
// thread at a time.
class TensorSteps {
 public:
  // Begins a stage. `trainable` is per entry, null: all. The layout must outlive the stage.
  void Start(const ParameterLayout& layout, const std::vector<bool>* trainable);
  // The next step. `reached`: whether an entry of the layout has got a gradient. Valid until the
  // next call.
  const std::vector<StepPieces>& Next(const std::vector<bool>& reached);
  // Whether every tensor of the stage is in the step that Next gave last.
  bool all_move() const { return all_move_; }

 private:
  const ParameterLayout* layout_ = nullptr;
  std::vector<bool> trained_;    // per entry
  std::vector<uint64_t> taken_;  // steps, per entry
  bool even_ = true;             // so far every tensor has taken every step
  bool all_move_ = true;
  std::vector<StepPieces> all_, some_;
};

}  // namespace macaw::training
