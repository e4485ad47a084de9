#include "cli/process/lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// How long the children of a killed process may take to end, and how often to try the lock again:
// there is no event when a lock is released.
constexpr Duration kLastBreath = std::chrono::seconds(5), kPause = std::chrono::milliseconds(10);

// The number, in the lock file, of the process that took the lock; 0: none.
pid_t HolderIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  int holder = 0;
  const bool number = text.ok() && absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &holder);
  return number ? holder : 0;
}

// Takes the lock. If the process that took it is gone, waits: its children, which the kernel is
// about to end, hold the last copies.
bool Take(int lock, const std::string& path) {
  const TimePoint end = SteadyClock().Now() + kLastBreath;
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const pid_t holder = HolderIn(path);
    const bool gone = holder > 0 && ::kill(holder, 0) != 0 && errno == ESRCH;
    if (!gone || SteadyClock().Now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

std::string PathOfLock(const std::string& folder) { return absl::StrCat(folder, "/.lock"); }

absl::StatusOr<Fd> OpenLock(const std::string& folder) {
  Fd lock(::open(PathOfLock(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write into ", folder));
  return lock;
}

// errno of opening the lock and taking it for a moment; 0: it was free. Shared, so that those who
// look at one moment do not take each other for the holder.
int ErrorOfLook(const std::string& folder) {
  const Fd lock(::open(PathOfLock(folder).c_str(), O_RDONLY | O_CLOEXEC));
  return lock.open() && ::flock(lock.get(), LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
}

// For messages of others. On a full disk the number is left out.
void WriteHolder(const Fd& lock) {
  const std::string holder = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(lock.get(), 0) == 0) (void)!::pwrite(lock.get(), holder.data(), holder.size(), 0);
}

}  // namespace

absl::StatusOr<Fd> LockFolder(const std::string& folder) {
  const std::string path = PathOfLock(folder);
  MACAW_ASSIGN_OR_RETURN(Fd lock, OpenLock(folder));
  if (!Take(lock.get(), path)) {
    const pid_t holder = HolderIn(path);
    return absl::FailedPreconditionError(
        absl::StrCat("another process", holder == 0 ? "" : absl::StrCat(" (pid ", holder, ")"),
                     " is running in ", folder));
  }
  WriteHolder(lock);
  return lock;
}

absl::StatusOr<Fd> TryLockFolder(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(Fd lock, OpenLock(folder));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
  WriteHolder(lock);
  return lock;
}

FolderLock LookAtLock(const std::string& folder) {
  switch (ErrorOfLook(folder)) {
    case 0:
    case ENOENT:
      return FolderLock::kFree;
    case EWOULDBLOCK:
      return FolderLock::kHeld;
    default:
      return FolderLock::kUnknown;
  }
}

absl::Status UnknownLock(const std::string& folder) {
  const int error = ErrorOfLook(folder);
  return absl::UnavailableError(absl::StrCat(
      "cannot tell whether a process works in ", folder, ": ", PathOfLock(folder),
      " cannot be opened or locked", error == 0 ? "" : absl::StrCat(": ", std::strerror(error)),
      "; run this command as the run's user"));
}

absl::StatusOr<Fd> TryLockName(const std::string& path) {
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!lock.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
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
