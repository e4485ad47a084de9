#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "core/random.h"
#include "models/spec.h"

namespace macaw::models {

// The named results of a forward pass over a batch of n examples.
struct Outputs {
  // Output of the last layer: [n, outputs]; for sequences [n, positions, outputs].
  at::Tensor logits;
  at::Tensor representation;  // [n, ...]: input of the last layer that has parameters
};

// What batch norm normalises with. kBatch: mean and variance of the batch. kBatchAndMove: the same,
// and the running statistics move by a tenth towards them, as in PyTorch's training. kRunning: the
// running statistics, as in evaluation.
enum class Statistics : uint8_t { kRunning, kBatch, kBatchAndMove };

class ScriptModule;
struct NetworkPass;

// The forward pass of a ModelSpec as a function of (batch, parameters). Parameters are arguments,
// so one network can be evaluated at any point (the replica, a broadcast model, another client's),
// and nothing is copied into modules. Immutable after construction and thread-safe; with a scripted
// module, one thread at a time.
class Network {
 public:
  // `device`: where batches and parameters will be. `checkpoint`: a pass that will be
  // differentiated keeps the inputs of segments (segments.h), which the backward pass computes
  // again. Throws if the spec's script cannot be loaded.
  explicit Network(ModelSpec spec, at::Device device = at::kCPU, bool checkpoint = false);

  // `batch` is [n, input shape...], of int32 if the model takes tokens. `parameters` are the
  // layout's entries in order, with their shapes, buffers included. Dropout draws its masks from
  // `dropout`, one word per element in layer order; null means no dropout (evaluation). A model
  // with move_buffers = false always uses running statistics. `lengths` is [n], of int64 and at
  // least 1: the tokens in use of each row. Behind them is padding, which layers of sequences leave
  // out ("flatten" does not). Undefined: all are in use. A scripted module does not get them, and
  // reads padding as token 0. With checkpoints, the network and the memory behind all tensors must
  // outlive the backward pass. Throws c10::Error where LibTorch does.
  Outputs Forward(const at::Tensor& batch, std::span<const at::Tensor> parameters,
                  RandomStream* dropout, Statistics statistics = Statistics::kRunning,
                  const at::Tensor& lengths = {}) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  // The layers [begin, end) of a pass. `own` are their parameters.
  at::Tensor Layers(size_t begin, size_t end, at::Tensor x, std::span<const at::Tensor> own,
                    const NetworkPass& pass) const;
  // The same, which the backward pass computes again.
  at::Tensor Segment(size_t begin, size_t end, const at::Tensor& x, std::span<const at::Tensor> own,
                     const NetworkPass& pass) const;
  // The parameters of the layers [begin, end) among all of the model's.
  std::span<const at::Tensor> Own(size_t begin, size_t end,
                                  std::span<const at::Tensor> parameters) const;

  ModelSpec spec_;
  std::shared_ptr<ScriptModule> script_;  // instead of layers
  std::vector<size_t> ends_;              // of the segments; the last one is all layers' end
  size_t last_parametric_ = 0;            // the last layer with parameters
  std::vector<bool>
      in_place_relu_;  // per layer: its input is used nowhere else, so it may be overwritten
};

// The layout's tensors as shaped views of a flat CPU vector, in entry order. The vector's bytes
// must outlive the views.
std::vector<at::Tensor> ViewsOf(VectorView vector);
// The same of a tensor that has the vector's numbers, on any device: views of it.
std::vector<at::Tensor> ViewsOf(const at::Tensor& flat, const ParameterLayout& layout);

}  // namespace macaw::models
