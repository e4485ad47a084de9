#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"

namespace macaw::cli {

// Fills in what only LibTorch can say of model.torchscript, the digest of the file and the module's
// tensors, and returns the module's values: the bytes of a safetensors file. Starts macaw-worker
// for it; an error is what that said.
absl::StatusOr<std::string> DescribeScript(Config& config);

}  // namespace macaw::cli
