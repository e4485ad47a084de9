#include "proto/wire/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/executor.h"
#include "core/listen_tcp.h"
#include "core/status.h"

namespace macaw::wire {
namespace {

constexpr int kBacklog = 1024;
constexpr Duration kTellEvery = std::chrono::minutes(1);

rlim_t MostDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

absl::Status Failed(const Address& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat("port in use: another program listens on ",
                                                 address.Text(),
                                                 "; choose another port, or :0 for a free one"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address.Text(), ": ", std::strerror(error)));
}

// Only this user may connect to the socket's file. Nobody can connect before the socket listens.
absl::StatusOr<Fd> ListenOnSocket(const Address& address) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, address.path.data(), address.path.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.open() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0 &&
      chmod(address.path.c_str(), S_IRUSR | S_IWUSR) == 0 && listen(fd.get(), kBacklog) == 0) {
    return fd;
  }
  return Failed(address, errno);
}

}  // namespace

int ReservedDescriptors() {
  constexpr rlim_t kMost = 256;
  return static_cast<int>(std::min(kMost, MostDescriptors() / 4));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(Address& address, int reserve) {
  auto listener = std::unique_ptr<Listener>(new Listener());
  listener->reserve_ = reserve;
  listener->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener->wake_.open()) return Failed(address, errno);
  listener->spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!address.is_unix) {
    MACAW_ASSIGN_OR_RETURN(listener->sockets_, ListenTcp(address.host, address.port));
    listener->address_ = address;
    return listener;
  }
  MACAW_ASSIGN_OR_RETURN(Fd fd, ListenOnSocket(address));
  listener->sockets_.push_back(std::move(fd));
  listener->socket_file_ = address.path;
  listener->address_ = address;
  return listener;
}

Listener::~Listener() {
  if (thread_.joinable()) {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  if (!socket_file_.empty()) unlink(socket_file_.c_str());
}

void Listener::Start(Accept accept) {
  accept_ = std::move(accept);
  thread_ = std::thread([this] { Loop(); });
}

void Listener::HangUp(int listening) {
  spare_.Close();
  Fd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC)).Close();
  spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Listener::TellOfRefusal() {
  ++refused_;
  const TimePoint now = SteadyClock().Now();
  if (told_ != TimePoint{} && now - told_ < kTellEvery) return;
  told_ = now;
  log_.Warning(absl::StrCat("connections_refused count=", std::exchange(refused_, 0),
                            " why=\"this process may have ", MostDescriptors(), " files open, and ",
                            reserve_,
                            " are for others than connections: raise the limit (ulimit -n, or "
                            "LimitNOFILE= of the systemd unit)\""));
}

void Listener::Loop() {
  NameThisThread("listener");
  std::vector<pollfd> waiting = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const Fd& fd : sockets_) waiting.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) return;
    for (const pollfd& listening : waiting) {
      if (listening.revents == 0) continue;
      Fd fd(accept4(listening.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.open() && (errno == EMFILE || errno == ENFILE)) {
        HangUp(listening.fd);
        TellOfRefusal();
      }
      if (!fd.open()) continue;
      // The system gives the lowest free number, so a high number means that nearly all are in use.
      if (static_cast<rlim_t>(fd.get()) + static_cast<rlim_t>(reserve_) < MostDescriptors()) {
        accept_(listening.fd, std::move(fd));
      } else {
        TellOfRefusal();
      }
    }
  }
}

}  // namespace macaw::wire
