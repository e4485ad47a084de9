#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/network.h"
#include "models/spec.h"

namespace macaw::models {

// A scripted module that takes its parameters and floating-point buffers as arguments of the
// forward pass, as Network does. `forward(self, batch)` takes [n, input shape...] (tokens: [n,
// positions], of int64) and returns logits [n, outputs] (next-token: [n, positions, outputs]), or a
// tuple of logits and a representation. Integer buffers and frozen parameters (requires_grad =
// False) are not part of the run's model: each pass starts with the file's values. Tied tensors are
// one tensor. One thread at a time.
class ScriptModule {
 public:
  // Throws LibTorch's exception if the bytes are no scripted module. Throws std::invalid_argument
  // if its tensors are not those of the layout, or if it draws random numbers other than dropout
  // (script_random.h): a run could not be repeated.
  // `device`: where batches and parameters will be. `checkpoint`: a pass that will be
  // differentiated keeps the inputs of segments (script_segments.h); throws where the graph cannot
  // be cut.
  ScriptModule(const ModelSpec& spec, at::Device device, bool checkpoint = false);
  ~ScriptModule();

  // Masks of dropout are drawn from `dropout`; null: nothing is dropped. With checkpoints, the
  // module must outlive the backward pass. Throws std::invalid_argument with a line of the module's
  // code if it cannot compute this batch, or returns another shape than the task needs.
  Outputs Forward(const at::Tensor& batch, std::span<const at::Tensor> parameters,
                  RandomStream* dropout, Statistics statistics);

 private:
  struct Module;
  std::unique_ptr<Module> module_;
};

// A script's tensors in layout order (ModelConfig::tensors; parameters, then floating-point
// buffers) and their values.
struct ScriptContent {
  std::vector<std::string> tensors;
  std::vector<at::Tensor> values;
};
// An error says why LibTorch cannot read the bytes, or why the module cannot be trained.
absl::StatusOr<ScriptContent> ReadScriptContent(const std::string& bytes);

}  // namespace macaw::models
