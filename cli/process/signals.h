#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <thread>

#include "absl/status/statusor.h"
#include "core/child.h"

namespace macaw::cli {

// Makes SIGINT (Ctrl-C), SIGTERM and SIGHUP readable events instead of interruptions. While the
// object lives, these signals are blocked in the thread that made it and in the threads that this
// thread starts. Make it before any other thread. A SIGHUP that is ignored (nohup) stays ignored.
class SignalFd {
 public:
  static absl::StatusOr<SignalFd> Open();
  // The same for SIGCHLD, which comes when a child is stopped, continued or ends.
  static absl::StatusOr<SignalFd> OpenForChildren();
  SignalFd(SignalFd&&) noexcept;
  ~SignalFd();
  int fd() const { return fd_.get(); }
  int Take();  // the next signal's number, 0 when there is none

 private:
  SignalFd() = default;
  static absl::StatusOr<SignalFd> Open(std::initializer_list<int> signals);
  Fd fd_;
  sigset_t before_{};
  bool active_ = false;
};

// A thread that passes each signal to `on_signal`, for a program whose main thread blocks
// elsewhere.
class SignalThread {
 public:
  SignalThread(SignalFd& signals, std::function<void(int signal)> on_signal);
  ~SignalThread();  // stops and joins

 private:
  Fd stop_;
  std::thread thread_;
};

}  // namespace macaw::cli
