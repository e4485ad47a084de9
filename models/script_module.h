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

// A scripted module whose parameters and floating-point buffers are arguments of the forward pass,
// as a Network's are. `forward(self, batch)` takes [n, input shape...] and returns logits
// [n, outputs], or a tuple of those and a representation. Integer buffers are not the run's: each
// pass begins with the file's. One thread at a time.
class ScriptModule {
 public:
  // Throws what LibTorch throws on bytes that are no scripted module, and std::invalid_argument
  // where its tensors are not the layout's or it draws random numbers (dropout): those would come
  // from a generator that all slots share, and no run could be repeated.
  explicit ScriptModule(const ModelSpec& spec);
  ~ScriptModule();

  Outputs Forward(const at::Tensor& batch, std::span<const at::Tensor> parameters,
                  Statistics statistics);

 private:
  struct Module;
  std::unique_ptr<Module> module_;
};

// What a script brings along: its tensors in the order of a layout (ModelConfig::tensors; named
// parameters, then floating-point buffers) and their values.
struct ScriptContent {
  std::vector<std::string> tensors;
  std::vector<at::Tensor> values;
};
// An error says why LibTorch cannot read the bytes, or what about the module cannot be trained.
absl::StatusOr<ScriptContent> ReadScriptContent(const std::string& bytes);

}  // namespace macaw::models
