#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"

namespace macaw::state {

// How many runs' states a node keeps; those of the runs that it opened last.
inline constexpr int kRunsKept = 4;

// For a node that takes part in one run after the other: the folder of this run's states in
// `path`, which is made if it is missing. That is `path` itself if this run's states lie there
// already (a node of release 0.1.0 had one run). Removes the folders of runs beyond kRunsKept.
absl::StatusOr<std::string> FolderOfRun(const std::string& path, const Digest& run);

// Whether the folder is one that FolderOfRun has made for this run.
bool IsFolderOf(const Digest& run, const std::string& folder);

}  // namespace macaw::state
