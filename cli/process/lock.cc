#include "cli/process/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"

namespace macaw::cli {

absl::StatusOr<Fd> LockFolder(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/.lock");
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write into ", folder));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const absl::StatusOr<std::string> text = ReadFile(path);
    const std::string holder(absl::StripAsciiWhitespace(text.ok() ? *text : ""));
    return absl::FailedPreconditionError(
        absl::StrCat("another process", holder.empty() ? "" : absl::StrCat(" (pid ", holder, ")"),
                     " is running in ", folder));
  }
  // For the message above; on a full disk that goes without.
  const std::string holder = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), holder.data(), holder.size(), 0) < 0) {
    return lock;
  }
  return lock;
}

Fd TryLockFile(const std::string& path) {
  Fd lock(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (lock.open() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) lock.Close();
  return lock;
}

absl::StatusOr<Fd> MakeLockedFile(const std::string& path) {
  const std::string aside = path + ".part";
  Fd lock(::open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock.open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename(aside.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  }
  return lock;
}

}  // namespace macaw::cli
