#include "proto/http/page_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/executor.h"
#include "core/fd.h"
#include "core/listen_tcp.h"
#include "core/status.h"
#include "proto/http/page_request.h"

namespace macaw::http {
namespace {

constexpr int kHeadTooLarge = 431, kBusy = 503;
constexpr size_t kThreads = 2;
constexpr int kLookEveryMs = 100;
// How long the other end has to close after it was told that this one will.
constexpr Duration kGoodbye = std::chrono::seconds(2);

enum class Stage : uint8_t { kHead, kAnswer, kReply, kGoodbye };

struct Connection {
  uint64_t number = 0;
  Fd fd;
  std::string address;
  Stage stage = Stage::kHead;
  TimePoint end{};    // of the stage; kAnswer has none
  std::string bytes;  // of the head, then of the reply
  size_t sent = 0;    // of the reply; then what was discarded
};

class PollingServer final : public PageServer {
 public:
  PollingServer(std::vector<Fd> listening, int port, Answer answer, const PageLimits& limits)
      : limits_(limits),
        answer_(std::move(answer)),
        port_(port),
        listening_(std::move(listening)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        executor_("page", kThreads),
        thread_([this] { Loop(); }) {}
  ~PollingServer() override {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
    }
    eventfd_write(wake_.get(), 1);
    thread_.join();
    executor_.WaitIdle();
  }

  int port() const override { return port_; }

 private:
  using Connections = std::list<Connection>;  // oldest first

  void Loop() {
    NameThisThread("http");
    std::vector<pollfd> waiting;
    while (true) {
      waiting.clear();
      waiting.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
      for (const Fd& fd : listening_)
        waiting.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
      for (const Connection& connection : connections_)
        waiting.push_back(
            {.fd = connection.fd.get(), .events = EventsOf(connection), .revents = 0});
      const int timeout = connections_.empty() ? -1 : kLookEveryMs;
      if (poll(waiting.data(), waiting.size(), timeout) < 0 && errno != EINTR) return;
      if (waiting[0].revents != 0 && !TakeReplies()) return;
      const TimePoint now = SteadyClock().Now();
      size_t place = 1 + listening_.size();
      for (auto it = connections_.begin(); it != connections_.end(); ++place) {
        const bool over = (waiting[place].revents != 0 && !Step(*it, now)) ||
                          (it->stage != Stage::kAnswer && now >= it->end);
        it = over ? connections_.erase(it) : std::next(it);
      }
      for (size_t i = 0; i < listening_.size(); ++i)
        if (waiting[1 + i].revents != 0) Accept(listening_[i], now);
    }
  }

  static short EventsOf(const Connection& connection) {
    switch (connection.stage) {
      case Stage::kReply:
        return POLLOUT;
      case Stage::kAnswer:
        return 0;
      default:
        return POLLIN;
    }
  }

  void Accept(const Fd& listening, TimePoint now) {
    Fd fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.open()) {
      // Without a descriptor one that waits gives way, or the newcomer goes: the loop would spin.
      if ((errno == EMFILE || errno == ENFILE) && !GiveWay([](const Connection&) { return true; }))
        HangUp(listening);
      return;
    }
    Connection connection{.number = ++last_, .fd = std::move(fd), .end = now + limits_.head_time};
    connection.address = AddressOfPeer(connection.fd.get());
    const auto same = [&](const Connection& c) { return c.address == connection.address; };
    if (static_cast<size_t>(std::ranges::count_if(connections_, same)) >= limits_.of_address &&
        !GiveWay(same)) {
      return;
    }
    if (connections_.size() >= limits_.connections &&
        !GiveWay([](const Connection&) { return true; })) {
      return;
    }
    connections_.push_back(std::move(connection));
  }

  // Takes a connection for which there is no descriptor, and closes it.
  void HangUp(const Fd& listening) {
    spare_.Close();
    Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)).Close();
    spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  // Ends the oldest of these connections that has not sent its request, else one that has its reply
  // and takes its time. False: there is none.
  template <typename Which>
  bool GiveWay(const Which& which) {
    for (const Stage stage : {Stage::kHead, Stage::kGoodbye, Stage::kReply}) {
      const auto it = std::ranges::find_if(connections_, [&](const Connection& connection) {
        return connection.stage == stage && which(connection);
      });
      if (it == connections_.end()) continue;
      connections_.erase(it);
      return true;
    }
    return false;
  }

  // Does what can be done now. False: the connection is over.
  bool Step(Connection& connection, TimePoint now) {
    switch (connection.stage) {
      case Stage::kHead:
        return ReadHead(connection, now);
      case Stage::kAnswer:
        return false;  // its caller has gone; the reply will find nobody
      case Stage::kReply:
        return Write(connection, now);
      case Stage::kGoodbye:
        return Discard(connection);
    }
    return false;
  }

  bool ReadHead(Connection& connection, TimePoint now) {
    char bytes[4096];
    const ssize_t read = recv(connection.fd.get(), bytes, sizeof(bytes), 0);
    if (read < 0) return errno == EAGAIN || errno == EINTR;
    if (read == 0) return false;
    connection.bytes.append(bytes, static_cast<size_t>(read));
    const size_t end = connection.bytes.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (connection.bytes.size() < limits_.head_bytes) return true;
      return Reply(connection, {.status = kHeadTooLarge, .body = "the request is too long\n"}, now);
    }
    int status = 0;
    auto request = ReadRequest(absl::string_view(connection.bytes).substr(0, end + 4), status);
    if (!request.has_value())
      return Reply(connection, {.status = status, .body = "there is no such page\n"}, now);
    if (answers_ == limits_.answers)
      return Reply(connection, {.status = kBusy, .body = "too many requests at once\n"}, now);
    ++answers_;
    connection.stage = Stage::kAnswer;
    connection.bytes.clear();
    executor_.Post([this, number = connection.number, asked = *std::move(request)] {
      std::string reply = BytesOfReply(answer_(asked), asked.head_only);
      absl::MutexLock lock(&mutex_);
      replies_.emplace_back(number, std::move(reply));
      eventfd_write(wake_.get(), 1);
    });
    return true;
  }

  bool Reply(Connection& connection, const PageReply& reply, TimePoint now) {
    connection.stage = Stage::kReply;
    connection.end = now + limits_.reply_time;
    connection.bytes = BytesOfReply(reply);
    return Write(connection, now);
  }

  bool Write(Connection& connection, TimePoint now) {
    const absl::string_view rest = absl::string_view(connection.bytes).substr(connection.sent);
    const ssize_t sent = send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
    if (connection.sent < connection.bytes.size()) return true;
    // Closing with unread bytes would throw away what was sent.
    shutdown(connection.fd.get(), SHUT_WR);
    connection.stage = Stage::kGoodbye;
    connection.end = now + kGoodbye;
    connection.bytes.clear();
    connection.sent = 0;
    return true;
  }

  // Reads a little of what the other end still sends. False: it has closed, or sends on and on.
  bool Discard(Connection& connection) const {
    char rest[4096];
    const ssize_t read = recv(connection.fd.get(), rest, sizeof(rest), 0);
    if (read < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(read);
    return read > 0 && connection.sent < limits_.head_bytes;
  }

  // False: the server stops.
  bool TakeReplies() {
    eventfd_t ignored = 0;
    eventfd_read(wake_.get(), &ignored);
    std::vector<std::pair<uint64_t, std::string>> replies;
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return false;
      replies.swap(replies_);
    }
    for (auto& [number, bytes] : replies) {
      --answers_;
      const auto it = std::ranges::find(connections_, number, &Connection::number);
      if (it == connections_.end()) continue;
      it->stage = Stage::kReply;
      it->end = SteadyClock().Now() + limits_.reply_time;
      it->bytes = std::move(bytes);
    }
    return true;
  }

  const PageLimits limits_;
  const Answer answer_;
  const int port_;
  const std::vector<Fd> listening_;
  const Fd wake_;
  // Of the loop's thread.
  Fd spare_{open("/dev/null", O_RDONLY | O_CLOEXEC)};  // closed to free a descriptor in HangUp
  Connections connections_;
  uint64_t last_ = 0;
  size_t answers_ = 0;  // being made
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<uint64_t, std::string>> replies_ ABSL_GUARDED_BY(mutex_);
  Executor executor_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(const std::string& host, int port,
                                                              Answer answer,
                                                              const PageLimits& limits) {
  MACAW_ASSIGN_OR_RETURN(std::vector<Fd> listening, ListenTcp(host, port));
  return std::make_unique<PollingServer>(std::move(listening), port, std::move(answer), limits);
}

}  // namespace macaw::http
