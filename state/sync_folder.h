#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::state {

// Makes everything in a folder and below it durable, whichever process wrote it: what a disk store
// or the append-only file of a Redis holds. Files that go away meanwhile are no error, nor is a
// folder that is not there yet.
absl::Status SyncFolder(const std::string& folder);

}  // namespace macaw::state
