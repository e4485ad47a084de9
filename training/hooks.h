#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "core/vector.h"
#include "models/network.h"

namespace macaw::training {

// The batch of the step under way, as a hook sees it. Valid during the call, on the trainer's
// thread.
class StepBatch {
 public:
  virtual ~StepBatch() = default;

  virtual at::Tensor features() const = 0;  // [n, input shape...], as the network received it
  virtual at::Tensor labels() const = 0;    // [n]: int64 classes, or targets of the run's dtype
  // The mean gradient of the stage's loss at `point` on this very batch, with the dropout masks of
  // the step (Mime's paired gradient). Frozen entries are zero. Borrowed until the next call.
  virtual ConstVectorView GradientAt(ConstVectorView point) = 0;
  // What the network at `point` makes of this batch, without dropout and outside autograd (a
  // teacher).
  virtual models::Outputs OutputsAt(ConstVectorView point) = 0;
};

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
  std::function<void(ConstVectorView w, VectorView g, StepBatch& batch)> correct;
};

}  // namespace macaw::training
