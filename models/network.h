#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/random.h"
#include "models/spec.h"

namespace macaw::models {

// What a forward pass makes of a batch of n examples, by name.
struct Outputs {
  at::Tensor logits;          // [n, outputs]: of the last layer
  at::Tensor representation;  // [n, ...]: what the last layer with parameters received
};

// The forward pass of a ModelSpec as a function of (batch, parameters): parameters are arguments,
// so one network serves any point (the replica, a broadcast model, another client's) and nothing is
// copied into modules. Immutable after construction, thread-safe.
class Network {
 public:
  explicit Network(ModelSpec spec);

  // `batch` is [n, input shape...]; `parameters` are the layout's entries in order, shaped. Dropout
  // draws its masks from `dropout`, one word an element in layer order; null means evaluation,
  // where it does nothing. Throws c10::Error where LibTorch does.
  Outputs Forward(const at::Tensor& batch, std::span<const at::Tensor> parameters,
                  RandomStream* dropout) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  ModelSpec spec_;
  size_t last_parametric_ = 0;  // layer
  std::vector<bool>
      in_place_relu_;  // per layer: its input is nobody else's, so it may be overwritten
};

// The layout's tensors as views of a flat vector on the CPU, shaped, in entry order. The bytes must
// outlive them.
std::vector<at::Tensor> ViewsOf(VectorView vector);

}  // namespace macaw::models
