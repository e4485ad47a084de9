#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::models {

// Describes a scripted module for a program without LibTorch. Writes its values to `out` as a model
// (safetensors); the metadata "tensors" lists its tensors (ModelConfig::tensors, one per line), and
// "script_digest" is the digest of the script. Errors say why LibTorch cannot read the file, or why
// the module cannot be trained.
absl::Status DescribeScript(const std::string& script, const std::string& out);

}  // namespace macaw::models
