#pragma once

#include <ATen/core/Tensor.h>

#include "core/vector.h"
#include "models/network.h"
#include "training/api/hooks.h"

namespace macaw::training {

// The current step's batch, as a loss hook sees it. Valid during the call, on the trainer's thread.
class StepBatch : public StepGradients {
 public:
  virtual at::Tensor features() const = 0;  // [n, input shape...], as the network receives it
  virtual at::Tensor labels() const = 0;    // [n]: int64 classes, or targets of the run's dtype
  // The network's outputs at `point` for this batch, without dropout and outside autograd (for a
  // teacher model).
  virtual models::Outputs OutputsAt(ConstVectorView point) = 0;
};

}  // namespace macaw::training
