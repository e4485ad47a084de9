#include "proto/wire/connection_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/executor.h"
#include "core/listen_tcp.h"

namespace macaw::wire {
namespace {

constexpr int kLookEveryMs = 250;
constexpr Duration kTickEvery = std::chrono::seconds(1);
constexpr Duration kSweepEvery = std::chrono::seconds(10);

// 0: the descriptor is no socket, or none at all.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// What its owner has read from a socket. What waits in the kernel does not count: a call's headers
// may be in front of it. 0 where the kernel does not count it.
uint64_t BytesRead(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  int unread = 0;
  if (ioctl(fd, FIONREAD, &unread) != 0 ||
      getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return 0;
  }
  const uint64_t received = info.tcpi_bytes_received;
  return received - std::min(received, static_cast<uint64_t>(unread));
}

// Ends the connection at once. After a shutdown, gRPC would read on as long as bytes come.
void Reset(int fd) {
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(fd, &nowhere, sizeof(nowhere)) != 0) shutdown(fd, SHUT_RDWR);
}

struct Peer {
  std::string text;     // "127.0.0.1:5", "[::1]:5"
  std::string address;  // AddressOf
};

Peer PeerOf(const sockaddr_storage& at) {
  char text[INET6_ADDRSTRLEN] = "";
  if (at.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(at);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return {absl::StrCat(text, ":", ntohs(v4.sin_port)), AddressOf(at)};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return {absl::StrCat(text, ":", ntohs(v6.sin6_port)), AddressOf(at)};
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%", v6.sin6_scope_id);
  return {absl::StrCat("[", text, scope, "]:", ntohs(v6.sin6_port)), AddressOf(at)};
}

std::optional<Peer> PeerOf(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) return std::nullopt;
  if (at.ss_family != AF_INET && at.ss_family != AF_INET6) return std::nullopt;
  return PeerOf(at);
}

// From gRPC's form, a URI: "ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5".
std::string TextOf(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:")) absl::ConsumePrefix(&peer, "ipv6:");
  if (!absl::StrContains(peer, '%')) return std::string(peer);
  return absl::StrReplaceAll(
      peer, {{"%5B", "["}, {"%5b", "["}, {"%5D", "]"}, {"%5d", "]"}, {"%25", "%"}});
}

}  // namespace

ConnectionGuard::ConnectionGuard(const GuardLimits& limits, Tell tell, std::function<void()> tick)
    : limits_(limits),
      tell_(std::move(tell)),
      tick_(std::move(tick)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = std::thread([this] { Loop(); });
}

ConnectionGuard::~ConnectionGuard() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

bool ConnectionGuard::Admit(int fd) {
  std::optional<Peer> peer = PeerOf(fd);
  const uint64_t cookie = CookieOf(fd);
  if (!peer.has_value()) return false;  // it is gone already
  if (cookie == 0) return true;         // a kernel that cannot tell sockets apart: no bounds
  absl::MutexLock lock(&mutex_);
  const auto of_address = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = strangers_of_.find(peer->address);
    return it != strangers_of_.end() ? it->second : 0;
  };
  const size_t most = MostOf(peer->address);
  if (strangers_.size() >= limits_.strangers || of_address() >= most)
    Look(SteadyClock().Now(), /*all=*/false);
  if (of_address() >= most) {
    tell_(peer->address,
          absl::StrCat("has ", most, " connections whose callers have not shown who they are"));
    return false;
  }
  if (!arrivals_[peer->address].Take(ArrivalsOf(peer->address), SteadyClock().Now())) {
    tell_(peer->address, "comes again and again without showing who it is");
    return false;
  }
  if (strangers_.size() >= limits_.strangers) MakeRoom(peer->address);
  if (strangers_.size() >= limits_.strangers) {
    tell_(peer->address, absl::StrCat("came when ", limits_.strangers,
                                      " connections had not shown whose they are"));
    return false;
  }
  if (const auto it = by_peer_.find(peer->text); it != by_peer_.end()) {
    // gRPC names a caller by this end alone: two such connections could not be told apart.
    const int old = connections_.at(it->second)->fd;
    if (PeerOf(old).has_value() && CookieOf(old) == it->second) {
      tell_(peer->address, "has a connection from the same port to another address of the server");
      return false;
    }
    Forget(it->second);
  }
  auto connection = std::make_unique<Connection>();
  connection->fd = fd;
  connection->cookie = cookie;
  connection->address = std::move(peer->address);
  connection->peer = std::move(peer->text);
  connection->deadline = SteadyClock().Now() + limits_.stranger_time;
  // The registration ends with the descriptor.
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = cookie}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  if (connections_.empty()) eventfd_write(wake_.get(), 1);  // the loop has a clock from now on
  by_peer_[connection->peer] = cookie;
  ++strangers_of_[connection->address];
  strangers_.insert(cookie);
  connections_[cookie] = std::move(connection);
  return true;
}

ConnectionGuard::Connection* ConnectionGuard::Find(absl::string_view peer) {
  const auto it = by_peer_.find(TextOf(peer));
  return it != by_peer_.end() ? connections_.at(it->second).get() : nullptr;
}

void ConnectionGuard::Identified(absl::string_view peer, const std::string& name,
                                 absl::FunctionRef<std::string()> certificate) {
  absl::MutexLock lock(&mutex_);
  Connection* const connection = Find(peer);
  if (connection == nullptr || !connection->name.empty()) return;
  NoStranger(*connection);
  if (const auto it = arrivals_.find(connection->address); it != arrivals_.end())
    it->second.Return(ArrivalsOf(connection->address));
  ++known_of_[connection->address];
  connection->name = name;
  connection->certificate = certificate();
  // From now on only its end is of interest. (The number may be another socket's by now.)
  epoll_event event{.events = EPOLLRDHUP | EPOLLET, .data = {.u64 = connection->cookie}};
  if (CookieOf(connection->fd) == connection->cookie)
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection->fd, &event);
  std::vector<uint64_t>& of_name = known_[name];
  of_name.push_back(connection->cookie);
  if (of_name.size() <= limits_.of_name) return;
  std::erase_if(of_name, [this](uint64_t cookie) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = connections_.find(cookie);
    return it == connections_.end() || CookieOf(it->second->fd) != cookie;
  });
  if (of_name.size() <= limits_.of_name) return;
  Cut(*connections_.at(of_name.front()),
      absl::StrCat("\"", name, "\" has more than ", limits_.of_name, " connections"));
}

void ConnectionGuard::Enrols(absl::string_view peer) {
  absl::MutexLock lock(&mutex_);
  Connection* const connection = Find(peer);
  if (connection == nullptr || !connection->name.empty()) return;
  connection->deadline = SteadyClock().Now() + limits_.enrolment_time;
  if (++connection->enrolments > limits_.enrolments) {
    CutStranger(*connection,
                absl::StrCat("asked more than ", limits_.enrolments, " times over one connection"));
  }
}

void ConnectionGuard::CutWhere(
    absl::FunctionRef<std::string(const std::string&, const std::string&)> why) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<const Connection*, std::string>> cut;
  for (const auto& [cookie, connection] : connections_) {
    if (connection->name.empty()) continue;
    std::string reason = why(connection->name, connection->certificate);
    if (!reason.empty()) cut.emplace_back(connection.get(), std::move(reason));
  }
  for (const auto& [connection, reason] : cut) Cut(*connection, reason);
}

size_t ConnectionGuard::strangers() const {
  absl::MutexLock lock(&mutex_);
  return strangers_.size();
}

size_t ConnectionGuard::known() const {
  absl::MutexLock lock(&mutex_);
  return connections_.size() - strangers_.size();
}

size_t ConnectionGuard::MostOf(const std::string& address) const {
  return known_of_.contains(address)
             ? std::max(limits_.strangers_of_address, limits_.strangers_of_known_address)
             : limits_.strangers_of_address;
}

Allowance ConnectionGuard::ArrivalsOf(const std::string& address) const {
  return {.every = limits_.arrivals.every,
          .burst = (known_of_.contains(address) ? 4 : 1) * limits_.arrivals.burst};
}

void ConnectionGuard::NoStranger(const Connection& connection) {
  if (strangers_.erase(connection.cookie) == 0) return;
  const auto it = strangers_of_.find(connection.address);
  if (--it->second == 0) strangers_of_.erase(it);
}

void ConnectionGuard::Cut(const Connection& connection, absl::string_view why) {
  // The owner may close the descriptor meanwhile, and its number may be another socket's. A second
  // descriptor keeps the socket that it is now.
  const Fd pinned(fcntl(connection.fd, F_DUPFD_CLOEXEC, 0));
  if (CookieOf(pinned.get()) == connection.cookie) {
    Reset(pinned.get());
    tell_(connection.address, why);
  }
  Forget(connection.cookie);
}

void ConnectionGuard::CutStranger(const Connection& connection, absl::string_view why) {
  arrivals_[connection.address].Charge(ArrivalsOf(connection.address), limits_.cut_counts,
                                       SteadyClock().Now());
  Cut(connection, why);
}

void ConnectionGuard::Forget(uint64_t cookie) {
  const auto it = connections_.find(cookie);
  if (it == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(it->second);
  connections_.erase(it);
  NoStranger(*connection);
  if (const auto at = known_of_.find(connection->address);
      !connection->name.empty() && --at->second == 0) {
    known_of_.erase(at);
  }
  if (const auto at = by_peer_.find(connection->peer);
      at != by_peer_.end() && at->second == cookie) {
    by_peer_.erase(at);
  }
  if (const auto at = known_.find(connection->name); at != known_.end()) {
    std::erase(at->second, cookie);
    if (at->second.empty()) known_.erase(at);
  }
}

// Cuts the oldest stranger of the address that has most of them, if that is not the newcomer's.
void ConnectionGuard::MakeRoom(const std::string& address) {
  const auto most =
      std::ranges::max_element(strangers_of_, {}, [](const auto& e) { return e.second; });
  if (most == strangers_of_.end() || most->first == address) return;
  const Connection* oldest = nullptr;
  for (const uint64_t cookie : strangers_) {
    const Connection& connection = *connections_.at(cookie);
    if (connection.address == most->first &&
        (oldest == nullptr || connection.deadline < oldest->deadline)) {
      oldest = &connection;
    }
  }
  Cut(*oldest, absl::StrCat("has most of ", limits_.strangers,
                            " connections whose callers have not shown who they are"));
}

void ConnectionGuard::Look(TimePoint now, bool all) {
  std::vector<uint64_t> gone;
  std::vector<const Connection*> late, loud;
  const auto look = [&](const Connection& connection) {
    if (CookieOf(connection.fd) != connection.cookie) {
      gone.push_back(connection.cookie);
    } else if (connection.name.empty() && now >= connection.deadline) {
      late.push_back(&connection);
    } else if (connection.name.empty() && BytesRead(connection.fd) > limits_.stranger_bytes) {
      loud.push_back(&connection);
    }
  };
  if (all) {
    absl::erase_if(arrivals_, [now](const auto& e) { return e.second.IsFull(now); });
    for (const auto& [cookie, connection] : connections_) look(*connection);
  } else {
    for (const uint64_t cookie : strangers_) look(*connections_.at(cookie));
  }
  for (const uint64_t cookie : gone) Forget(cookie);
  for (const Connection* const connection : late)
    CutStranger(*connection, "made no call with a good certificate in time");
  for (const Connection* const connection : loud) CutLoud(*connection);
}

void ConnectionGuard::CutLoud(const Connection& connection) {
  CutStranger(connection, absl::StrCat("sent more than ", limits_.stranger_bytes,
                                       " bytes before a call with a good certificate"));
}

void ConnectionGuard::OnEvent(uint64_t cookie, uint32_t events) {
  absl::MutexLock lock(&mutex_);
  const auto it = connections_.find(cookie);
  if (it == connections_.end()) return;
  const Connection& connection = *it->second;
  const uint64_t read = connection.name.empty() ? BytesRead(connection.fd) : 0;
  if (CookieOf(connection.fd) != cookie) return Forget(cookie);
  if (read > limits_.stranger_bytes) {
    CutLoud(connection);
  } else if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    Forget(cookie);  // gRPC closes it
  }
}

void ConnectionGuard::Loop() {
  NameThisThread("guard");
  std::array<epoll_event, 64> events{};
  TimePoint looked{}, ticked{}, swept{};
  while (true) {
    const int timeout = strangers() + known() == 0 ? -1 : kLookEveryMs;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (count < 0 && errno != EINTR) return;
    const TimePoint now = SteadyClock().Now();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 != 0) {
        OnEvent(event.data.u64, event.events);
        continue;
      }
      eventfd_t ignored = 0;
      eventfd_read(wake_.get(), &ignored);
    }
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
      if (now - looked >= std::chrono::milliseconds(kLookEveryMs)) {
        const bool all = now - swept >= kSweepEvery;
        if (all) swept = now;
        looked = now;
        Look(now, all);
      }
    }
    if (now - ticked >= kTickEvery) {
      ticked = now;
      tick_();
    }
  }
}

}  // namespace macaw::wire
