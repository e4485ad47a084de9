#include "cli/process/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "core/executor.h"

namespace macaw::cli {

absl::StatusOr<SignalFd> SignalFd::Open() {
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) return Open({SIGINT, SIGTERM});  // started by nohup
  return Open({SIGINT, SIGTERM, SIGHUP});
}
absl::StatusOr<SignalFd> SignalFd::OpenForChildren() { return Open({SIGCHLD}); }

absl::StatusOr<SignalFd> SignalFd::Open(std::initializer_list<int> watched) {
  SignalFd signals;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : watched) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, &signals.before_);
  signals.active_ = true;
  signals.fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.fd_.open()) return absl::ErrnoToStatus(errno, "cannot watch signals");
  return signals;
}

SignalFd::SignalFd(SignalFd&& other) noexcept
    : fd_(std::move(other.fd_)),
      before_(other.before_),
      active_(std::exchange(other.active_, false)) {}

SignalFd::~SignalFd() {
  if (!active_) return;
  while (fd_.open() && Take() != 0) {
  }  // takes the pending signals, which were meant for this process
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int SignalFd::Take() {
  signalfd_siginfo info;
  const ssize_t got = ::read(fd_.get(), &info, sizeof(info));
  return got == static_cast<ssize_t>(sizeof(info)) ? static_cast<int>(info.ssi_signo) : 0;
}

SignalThread::SignalThread(SignalFd& signals, std::function<void(int)> on_signal)
    : stop_(::eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([&signals, stop = stop_.get(), on_signal = std::move(on_signal)] {
    NameThisThread("signals");
    pollfd watched[] = {{signals.fd(), POLLIN, 0}, {stop, POLLIN, 0}};
    while (true) {
      if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
      if (watched[1].revents != 0) return;
      while (const int signal = signals.Take()) on_signal(signal);
    }
  });
}

SignalThread::~SignalThread() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

}  // namespace macaw::cli
