#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::state {

// Makes everything in a folder and below it durable, whichever process wrote it: the files of a
// disk store, or Redis' append-only file. A file that disappears meanwhile is no error, nor is a
// missing folder.
absl::Status SyncFolder(const std::string& folder);

}  // namespace macaw::state
