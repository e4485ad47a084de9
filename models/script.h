#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "models/spec.h"
#include "plan/model.h"

namespace macaw::models {

// A scripted module (TorchScript) as a run's model: [model] torchscript = "net.pt". All nodes agree
// on the digest of its file and the list of its tensors; each node has its own path. This is the
// half without LibTorch.

inline constexpr char kScriptName[] = "torchscript";  // the ModelConfig::name of such a model
// That of a model of which the run knows the tensors alone, because a program of the owner's trains
// it (workers.command): [model] tensors and init. Its spec is made as that of a script.
inline constexpr char kProgramsName[] = "program";

// The spec of a model of one of these names: a layout, no layers. Each line of
// ModelConfig::tensors must be "parameter NAME EXTENT…" or "buffer NAME EXTENT…"; an error names
// the line that is not.
absl::StatusOr<ModelSpec> BuildScriptSpec(const ModelConfig& config, DType dtype);

// The line of ModelConfig::tensors for an entry of the layout.
std::string TensorLine(const LayoutEntry& entry);

// The bytes of the file, for ModelSpec::script. If its digest is not the run's, the error shows
// both.
absl::StatusOr<std::shared_ptr<const std::string>> ReadScript(const std::string& path,
                                                              const std::string& digest);

}  // namespace macaw::models
