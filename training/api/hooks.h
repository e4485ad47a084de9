#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

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
  // The same, and the pass moves `point`'s statistics of batch norm, as a training step moves those
  // of its model; parameters and frozen statistics stay. For a model of the rule's own that is
  // evaluated. By default nothing moves.
  virtual ConstVectorView GradientAtOwn(VectorView point) { return GradientAt(point); }
};

// A batch's representations (models::Outputs): of a list of layers the input of the last layer that
// has parameters, of a scripted module what it returns beside its logits. Each is a matrix with a
// row for an example, row by row, in double; an example's representation is flattened.
struct Representations {
  size_t rows = 0;
  size_t width = 0;             // numbers of a row
  std::span<const double> own;  // at the point that is trained, with the step's dropout
  // At Stage::references, in their order: without dropout, with running statistics, and constants
  // to autograd.
  std::vector<std::span<const double>> references = {};
};

class StepBatch;  // training/hooks.h: the same batch as tensors

// Local rules that the affine correction cannot express. A stage with hooks runs on the eager
// trainer. Any hook may be empty. Hooks may throw what LibTorch throws. Several slots call them
// at once, each with arguments of its own.
struct Hooks {
  // The scalar to minimise instead of the task's loss: a mean over the batch. `w` are the
  // parameters in layout order; they are leaves of autograd's graph.
  std::function<at::Tensor(const models::Outputs& outputs, StepBatch& batch,
                           std::span<const at::Tensor> w)>
      loss;
  // A loss on the rows' representations that is added to the task's own: returns its sum over the
  // rows, and writes that sum's gradient with respect to `z.own` to `gradient`, which is as large.
  // The trainer takes the mean over the step's rows. Not beside `loss`, nor for tasks that rate
  // each position of a row.
  std::function<double(const Representations& z, std::span<double> gradient)> representations;
  // Changes the gradient `g` in place, after the norm clip and before the affine correction.
  std::function<void(ConstVectorView w, VectorView g, StepGradients& batch)> correct;
};

}  // namespace macaw::training
