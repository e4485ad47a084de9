#pragma once

#include <torch/csrc/jit/api/module.h>

#include "core/random.h"

namespace macaw::models {

// Lets the forward pass of a scripted module draw its dropout masks from the run's stream, where
// LibTorch would draw them from a generator that slots share. random_ops.h lists what that is.
// Throws std::invalid_argument if the module draws other random numbers, since no run could repeat
// them, and if forward sets an attribute that it reads, which would go from turn to turn. The
// module has one method afterwards: forward.
void DrawFromTheRun(torch::jit::Module& module);

// While it lives, such modules draw from `stream` on this thread; null: they drop nothing. A module
// that was traced drops by this alone, whatever mode it was traced in.
class MasksFrom {
 public:
  explicit MasksFrom(RandomStream* stream);
  ~MasksFrom();
  MasksFrom(const MasksFrom&) = delete;
  MasksFrom& operator=(const MasksFrom&) = delete;
};

}  // namespace macaw::models
