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

// The batch of the step under way, as far as no tensor library is needed. Valid during the call, on
// the trainer's thread.
class StepGradients {
 public:
  virtual ~StepGradients() = default;
  // The mean gradient of the stage's loss at `point` on this very batch, with the dropout masks of
  // the step (Mime's paired gradient). Frozen entries are zero. Borrowed until the next call.
  virtual ConstVectorView GradientAt(ConstVectorView point) = 0;
};

class StepBatch;  // training/hooks.h: the same batch as tensors

// Rules that the affine correction cannot say. A stage that has hooks runs on the eager trainer.
// Either may be empty. Hooks may throw what LibTorch throws; they are called from several slots at
// once, each with its own arguments.
struct Hooks {
  // The scalar to descend, instead of the task's loss: a mean over the batch. `w` are the
  // parameters in layout order, leaves of the graph.
  std::function<at::Tensor(const models::Outputs& outputs, StepBatch& batch,
                           std::span<const at::Tensor> w)>
      loss;
  // Rewrites the gradient `g` in place, after the norm clip and before the affine correction.
  std::function<void(ConstVectorView w, VectorView g, StepGradients& batch)> correct;
};

}  // namespace macaw::training
