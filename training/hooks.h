#pragma once

#include <ATen/core/Tensor.h>

#include "core/vector.h"
#include "models/network.h"
#include "training/api/hooks.h"

namespace macaw::training {

// The batch of the step under way, as a loss hook sees it. Valid during the call, on the trainer's
// thread.
class StepBatch : public StepGradients {
 public:
  virtual at::Tensor features() const = 0;  // [n, input shape...], as the network received it
  virtual at::Tensor labels() const = 0;    // [n]: int64 classes, or targets of the run's dtype
  // What the network at `point` makes of this batch, without dropout and outside autograd (a
  // teacher).
  virtual models::Outputs OutputsAt(ConstVectorView point) = 0;
};

}  // namespace macaw::training
