#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::models {

// What a program without LibTorch needs to know of a scripted module: writes its values to `out` as
// a model (safetensors), with the list of its tensors (ModelConfig::tensors, a line each) as
// metadata "tensors" and the digest of the script as "script_digest". Errors say why LibTorch
// cannot read the file, or what about the module cannot be trained.
absl::Status DescribeScript(const std::string& script, const std::string& out);

}  // namespace macaw::models
