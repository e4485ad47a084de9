#include "cli/process/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stop_token>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/fd.h"
#include "core/pause.h"

namespace macaw::cli {

void NotifyManager(absl::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr) return;
  const size_t length = std::strlen(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (length < 2 || length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // a name without a file
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.open()) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  [[maybe_unused]] const ssize_t ignored =
      ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size);
}

std::optional<Duration> WatchdogPeriod() {
  const char* const text = std::getenv("WATCHDOG_USEC");
  uint64_t microseconds = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &microseconds) || microseconds == 0) {
    return std::nullopt;
  }
  if (const char* const whose = std::getenv("WATCHDOG_PID")) {
    int pid = 0;
    if (!absl::SimpleAtoi(whose, &pid) || pid != ::getpid()) return std::nullopt;
  }
  return std::chrono::duration_cast<Duration>(std::chrono::microseconds(microseconds));
}

Watchdog::Watchdog(std::function<void()> ask) {
  const std::optional<Duration> period = WatchdogPeriod();
  if (!period.has_value()) return;
  thread_ = std::jthread([ask = std::move(ask), pause = *period / 2](const std::stop_token& stop) {
    do {
      ask();
    } while (!PauseUnlessStopped(stop, pause));
  });
}

}  // namespace macaw::cli
