#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

namespace macaw::testing_support {

// While it lives, this process cannot make a file longer than so many bytes: a write that would is
// cut short, and the next one fails. It stands for a disk that becomes full in a record.
class FileLimit {
 public:
  explicit FileLimit(uint64_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace macaw::testing_support
