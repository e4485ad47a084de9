#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "testing/temporary_folder.h"

namespace macaw::testing_support {

// A file system of its own (tmpfs) of limited size, to test a full disk. It is mounted such that
// only this process and its children see it, so it disappears with them. Mounting needs root or a
// user namespace: check mounted(), and skip the test with why() if it failed. Create it before any
// thread is started.
class SmallDisk {
 public:
  explicit SmallDisk(uint64_t bytes) {
    if (OwnMounts()) {
      mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, Size(bytes).c_str()) == 0;
    }
    if (!mounted_) why_ = absl::StrCat("no right to mount a tmpfs: ", std::strerror(errno));
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why() const { return why_; }
  const std::string& path() const { return folder_.path(); }
  bool Grow(uint64_t bytes) const {
    return ::mount("tmpfs", path().c_str(), "tmpfs", MS_REMOUNT, Size(bytes).c_str()) == 0;
  }

 private:
  static std::string Size(uint64_t bytes) { return absl::StrCat("size=", bytes); }

  static bool Write(const char* path, const std::string& text) {
    const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
    return fd.open() && ::write(fd.get(), text.data(), text.size()) >= 0;
  }
  // Mounts of this process's own; not more than once.
  static bool OwnMounts() {
    static const bool own = [] {
      if (::unshare(CLONE_NEWNS) != 0) {
        const uid_t user = ::getuid();
        const gid_t group = ::getgid();
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        if (!Write("/proc/self/setgroups", "deny") ||
            !Write("/proc/self/uid_map", absl::StrCat(user, " ", user, " 1")) ||
            !Write("/proc/self/gid_map", absl::StrCat(group, " ", group, " 1"))) {
          return false;
        }
      }
      return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    }();
    return own;
  }

  const TemporaryFolder folder_;
  bool mounted_ = false;
  std::string why_;
};

}  // namespace macaw::testing_support
