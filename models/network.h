#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "core/random.h"
#include "models/spec.h"

namespace macaw::models {

// What a forward pass makes of a batch of n examples, by name.
struct Outputs {
  at::Tensor logits;  // [n, outputs], of sequences [n, positions, outputs]: the last layer's
  at::Tensor representation;  // [n, ...]: what the last layer with parameters received
};

// What batch norm works with. kBatch: mean and variance of the batch; kBatchAndMove: likewise, and
// the running statistics among the parameters move by a tenth towards them, as PyTorch's do in
// training; kRunning: the running statistics, as in evaluation.
enum class Statistics : uint8_t { kRunning, kBatch, kBatchAndMove };

class ScriptModule;

// The forward pass of a ModelSpec as a function of (batch, parameters): parameters are arguments,
// so one network serves any point (the replica, a broadcast model, another client's) and nothing is
// copied into modules. Immutable after construction, thread-safe; of a scripted module, one thread
// at a time.
class Network {
 public:
  // Throws where the spec's script cannot be loaded.
  explicit Network(ModelSpec spec);

  // `batch` is [n, input shape...], of int32 where the model takes tokens; `parameters` are the
  // layout's entries in order, buffers included, shaped. Dropout draws its masks from `dropout`,
  // one word an element in layer order; null means evaluation, where it does nothing. A model whose
  // buffers nobody moves has running statistics always. Throws c10::Error where LibTorch does.
  Outputs Forward(const at::Tensor& batch, std::span<const at::Tensor> parameters,
                  RandomStream* dropout, Statistics statistics = Statistics::kRunning) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  ModelSpec spec_;
  std::shared_ptr<ScriptModule> script_;  // instead of layers
  size_t last_parametric_ = 0;            // layer
  std::vector<bool>
      in_place_relu_;  // per layer: its input is nobody else's, so it may be overwritten
};

// The layout's tensors as views of a flat vector on the CPU, shaped, in entry order. The bytes must
// outlive them.
std::vector<at::Tensor> ViewsOf(VectorView vector);

}  // namespace macaw::models
