#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/options.h"

namespace macaw::data {

// Returns the name of the source (DataSources()) that can read the file or folder `path`, judged by
// its first bytes and its file names. If none can, the error says what the path contains and what
// to do. Reads at most the first 64 KiB. Of `given` the keys count that say how a text is read:
// `separator`, which only tables have, and `unreadable_rows`.
absl::StatusOr<std::string> DetectSource(const std::string& path, const DataOptions& given = {});

}  // namespace macaw::data
