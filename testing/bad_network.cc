#include "testing/bad_network.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace macaw::testing_support {
namespace {

constexpr uint64_t kMostAtOnce = 1 << 16;
// How much a slow direction carries at once.
constexpr Duration kPiece = std::chrono::milliseconds(10);
constexpr uint64_t kLeastBuffer = 16 << 10;
constexpr int kLookForStopMilliseconds = 50;

uint64_t PieceBytes(uint64_t bytes_per_second) {
  return static_cast<uint64_t>(static_cast<double>(bytes_per_second) * ToSeconds(kPiece));
}

// A slow line must not hide in the system's buffers.
void KeepBuffersSmall(const Fd& socket, uint64_t bytes_per_second) {
  const int size = static_cast<int>(std::max(kLeastBuffer, PieceBytes(bytes_per_second)));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int PortIn(const std::string& address) {
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
  return port;
}

}  // namespace

// One connection. One thread.
class BadNetwork::Relay {
 public:
  Relay(BadNetwork& network, Fd client, Fault fault)
      : network_(network),
        fault_(fault),
        client_(std::move(client)),
        server_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

  void Run() {
    if (network_.down_ || Hits(0)) return;  // cut before anything
    if (Slow()) KeepBuffersSmall(server_, Rate());
    const sockaddr_in address = Loopback(network_.server_port_);
    if (connect(server_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      return;
    for (const Fd* fd : {&client_, &server_}) {
      const int on = 1;
      setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    ways_[0] = {.from = client_.get(), .to = server_.get()};
    ways_[1] = {.from = server_.get(), .to = client_.get()};
    while (!network_.stop_ && !network_.down_ && Step()) continue;
  }

 private:
  struct Piece {
    TimePoint due;
    std::string bytes;
  };
  struct Way {  // a direction
    int from = -1, to = -1;
    TimePoint free{};  // when it may carry the next bytes
    std::deque<Piece> travelling;
    bool ended = false;  // nothing more comes
  };

  uint64_t Rate() const { return network_.options_.bytes_per_second; }
  bool Slow() const { return Rate() > 0; }

  // Waits until there is something to do, and does it. False: the connection is over.
  bool Step() {
    const TimePoint now = SteadyClock().Now();
    TimePoint wake = now + std::chrono::milliseconds(kLookForStopMilliseconds);
    pollfd ends[2];
    for (int i = 0; i < 2; ++i) {
      const Way& way = ways_[i];
      const bool held = i == 1 && network_.down() >= network_.most_down_;
      const bool may_read = !way.ended && !held && way.free <= now;
      ends[i] = {.fd = may_read ? way.from : -1, .events = POLLIN, .revents = 0};
      if (!way.ended && !held && !may_read) wake = std::min(wake, way.free);
      if (!way.travelling.empty()) wake = std::min(wake, way.travelling.front().due);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
    poll(ends, 2, static_cast<int>(std::max<int64_t>(wait, 0)));
    for (int i = 0; i < 2; ++i) {
      if (ends[i].revents != 0 && !Read(i)) return false;
      if (!Deliver(i)) return false;
    }
    return !(ways_[0].ended && ways_[0].travelling.empty()) &&
           !(ways_[1].ended && ways_[1].travelling.empty());
  }

  bool Read(int i) {
    Way& way = ways_[i];
    uint64_t most = kMostAtOnce;
    if (Slow()) most = std::max<uint64_t>(PieceBytes(Rate()), 1);
    if (fault_.kind != Fault::Kind::kNone && seen_ < fault_.after)
      most = std::min(most, fault_.after - seen_);
    std::string bytes(most, '\0');
    const ssize_t n = recv(way.from, bytes.data(), bytes.size(), 0);
    if (n <= 0) {
      way.ended = true;
      return true;
    }
    bytes.resize(static_cast<size_t>(n));
    const TimePoint now = SteadyClock().Now();
    // The thread may have been woken late, and catches up.
    if (Slow())
      way.free = std::max(way.free, now - kPiece) + FromSeconds(double(n) / double(Rate()));
    if (stalled_) return true;
    if (corrupt_) bytes[0] = static_cast<char>(bytes[0] ^ 1);
    corrupt_ = false;
    way.travelling.push_back({now + network_.options_.delay, std::move(bytes)});
    seen_ += static_cast<uint64_t>(n);
    if (!Hits(seen_)) return true;
    for (int other = 0; other < 2; ++other) {  // what came before the fault arrives
      for (Piece& piece : ways_[other].travelling) piece.due = now;
      if (!Deliver(other)) return false;
    }
    return false;
  }

  // Sends what is due.
  bool Deliver(int i) {
    Way& way = ways_[i];
    while (!way.travelling.empty() && way.travelling.front().due <= SteadyClock().Now()) {
      const std::string& bytes = way.travelling.front().bytes;
      if (send(way.to, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(bytes.size())) {
        return false;
      }
      network_.carried_[i] += bytes.size();
      way.travelling.pop_front();
    }
    return true;
  }

  // Lets the fault happen if it is due. Whether the connection is to be closed.
  bool Hits(uint64_t seen) {
    if (fault_.kind == Fault::Kind::kNone || seen < fault_.after) return false;
    ++network_.faults_;
    const Fault::Kind kind = std::exchange(fault_.kind, Fault::Kind::kNone);
    stalled_ = kind == Fault::Kind::kStall;
    corrupt_ = kind == Fault::Kind::kCorrupt;
    return kind == Fault::Kind::kCut;
  }

  BadNetwork& network_;
  Fault fault_;
  const Fd client_, server_;
  Way ways_[2];
  uint64_t seen_ = 0;
  bool stalled_ = false, corrupt_ = false;
};

BadNetwork::BadNetwork(int server_port, BadNetworkOptions options)
    : options_(std::move(options)),
      server_port_(server_port),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (options_.bytes_per_second > 0)  // connections inherit it
    KeepBuffersSmall(listener_, options_.bytes_per_second);
  sockaddr_in address = Loopback(0);
  bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  listen(listener_.get(), 64);
  socklen_t size = sizeof(address);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

BadNetwork::BadNetwork(const std::string& server, BadNetworkOptions options)
    : BadNetwork(PortIn(server), std::move(options)) {}

BadNetwork::~BadNetwork() {
  stop_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (std::thread& relay : relays_) relay.join();
}

std::string BadNetwork::address() const { return absl::StrCat("127.0.0.1:", port_); }

void BadNetwork::Redirect(const std::string& server) { server_port_ = PortIn(server); }

Fault BadNetwork::FaultOf(size_t connection) const {
  if (connection < options_.faults.size()) return options_.faults[connection];
  return options_.again && !options_.faults.empty() ? options_.faults.back() : Fault{};
}

void BadNetwork::Accept() {
  while (!stop_) {
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.open()) return;
    const auto number = static_cast<size_t>(connections_++);
    relays_.emplace_back([this, client = std::move(client), fault = FaultOf(number)]() mutable {
      Relay(*this, std::move(client), fault).Run();
    });
  }
}

}  // namespace macaw::testing_support
