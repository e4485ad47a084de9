#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace macaw::data {

// The name of the source (DataSources()) that reads the file or folder `path`, told from its first
// bytes and the names in it. An error says what the path holds instead and what to do with it, and
// for a missing one, that it does not exist. Reads at most the first 64 KiB.
absl::StatusOr<std::string> DetectSource(const std::string& path);

}  // namespace macaw::data
