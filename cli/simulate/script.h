#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"

namespace macaw::cli {

// Fills in what only LibTorch can say of model.torchscript: the digest of the file and the tensors
// of the module. Returns the values of the module as the bytes of a safetensors file. Starts
// macaw-worker for this, and returns its error.
absl::StatusOr<std::string> DescribeScript(Config& config);

}  // namespace macaw::cli
