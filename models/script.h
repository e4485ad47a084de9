#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/run_config.h"
#include "core/vector.h"
#include "models/spec.h"

namespace macaw::models {

// A scripted module (TorchScript) as a run's model: [model] torchscript = "net.pt". What all nodes
// agree on is the digest of its file and the list of its tensors; the path is each node's own. The
// torch-free half.

inline constexpr char kScriptName[] = "torchscript";  // ModelConfig::name of such a model

// The spec of a model whose name is kScriptName: a layout and no layers. An error names the line of
// ModelConfig::tensors, "parameter NAME EXTENT…" or "buffer NAME EXTENT…", that is not one.
absl::StatusOr<ModelSpec> BuildScriptSpec(const ModelConfig& config, DType dtype);

// What stands in ModelConfig::tensors for an entry of the layout.
std::string TensorLine(const LayoutEntry& entry);

// The bytes of the file, for ModelSpec::script. Refuses, with both digests, a file that is not the
// run's.
absl::StatusOr<std::shared_ptr<const std::string>> ReadScript(const std::string& path,
                                                              const std::string& digest);

}  // namespace macaw::models
