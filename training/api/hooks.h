#pragma once

#include <functional>
#include <span>

#include "core/vector.h"

namespace at {
class Tensor;
}
namespace macaw::models {
struct Outputs;
}

namespace macaw::training {

// What a hook can ask about the current step's batch without a tensor library. Valid during the
// call, on the trainer's thread.
class StepGradients {
 public:
  virtual ~StepGradients() = default;
  // The mean gradient of the stage's loss at `point` on this batch, with the step's dropout masks
  // (Mime's paired gradient). Frozen entries are zero. Valid until the next call.
  virtual ConstVectorView GradientAt(ConstVectorView point) = 0;
};

class StepBatch;  // training/hooks.h: the same batch as tensors

// Local rules that the affine correction cannot express. A stage with hooks runs on the eager
// trainer. Either hook may be empty. Hooks may throw what LibTorch throws. Several slots call them
// at once, each with arguments of its own.
struct Hooks {
  // The scalar to minimise instead of the task's loss: a mean over the batch. `w` are the
  // parameters in layout order; they are leaves of autograd's graph.
  std::function<at::Tensor(const models::Outputs& outputs, StepBatch& batch,
                           std::span<const at::Tensor> w)>
      loss;
  // Changes the gradient `g` in place, after the norm clip and before the affine correction.
  std::function<void(ConstVectorView w, VectorView g, StepGradients& batch)> correct;
};

}  // namespace macaw::training
