#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw::cli {

// Holds a run's folder (which exists) against any other process that would write into it, by a lock
// on FOLDER/.lock that lasts until the descriptor and all copies of it in child processes are
// closed, in whatever way. Refused with the number of the process that holds it; where that one is
// gone (killed), its children are ending and are waited for, for 5 s at most.
absl::StatusOr<Fd> LockFolder(const std::string& folder);

// The same without waiting or a message: nothing when the file is not there or is held.
Fd TryLockFile(const std::string& path);

// Makes a file that is held from the first moment at which others can see it.
absl::StatusOr<Fd> MakeLockedFile(const std::string& path);

}  // namespace macaw::cli
