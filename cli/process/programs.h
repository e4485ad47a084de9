#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace macaw::cli {

// The folder that this program lies in, and its siblings with it.
absl::StatusOr<std::string> ProgramFolder();

}  // namespace macaw::cli
