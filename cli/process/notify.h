#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "absl/strings/string_view.h"
#include "core/clock.h"

namespace macaw::cli {

// Tells the service manager that started this process, such as systemd, how it is: "READY=1",
// "WATCHDOG=1" (the protocol of sd_notify(3): a datagram to the socket that NOTIFY_SOCKET names).
// Without a manager it does nothing. An unreachable socket is no error. Thread-safe.
void NotifyManager(absl::string_view state);

// The manager kills a process that it has not heard of for this long (WATCHDOG_USEC). Nothing: it
// does not watch this process.
std::optional<Duration> WatchdogPeriod();

// Calls `ask` twice in each watchdog period, on a thread of its own. `ask` must have "WATCHDOG=1"
// sent by the thread that is to be watched. Without a watchdog it does nothing.
class Watchdog {
 public:
  explicit Watchdog(std::function<void()> ask);

 private:
  std::jthread thread_;
};

}  // namespace macaw::cli
