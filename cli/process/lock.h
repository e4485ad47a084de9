#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw::cli {

// Locks a run's folder (which exists), so that no other process writes into it. The lock is on
// FOLDER/.lock. It lasts until the descriptor and all its copies in child processes are closed. If
// another process holds the lock, the error gives its number. If that process is gone (killed), its
// children are about to end, and this call waits for them, for 5 s at most.
absl::StatusOr<Fd> LockFolder(const std::string& folder);

// The same without waiting. Returns an empty Fd when another process holds the lock.
absl::StatusOr<Fd> TryLockFolder(const std::string& folder);

// Whether a process runs in a folder.
enum class FolderLock : uint8_t {
  kFree,     // also where there is no lock file: no process has run there, or it is a copy
  kHeld,     // by a process
  kUnknown,  // the lock file cannot be opened or locked
};

// Looks at the folder's lock, which it takes shared for a moment. Needs to read the lock file, and
// not to write it.
FolderLock LookAtLock(const std::string& folder);

// The error of kUnknown: looks again, for what the system says.
absl::Status UnknownLock(const std::string& folder);

// Locks a file, which is made if it is missing, without waiting. Returns an empty Fd when another
// process holds the lock.
absl::StatusOr<Fd> TryLockName(const std::string& path);

// Locks a file without waiting. Returns an empty Fd when it is locked or missing, or cannot be
// opened.
Fd TryLockFile(const std::string& path);

// Makes a file that is locked before other processes can see it.
absl::StatusOr<Fd> MakeLockedFile(const std::string& path);

}  // namespace macaw::cli
