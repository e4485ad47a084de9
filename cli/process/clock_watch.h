#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "core/clock.h"

namespace macaw::cli {

// Finds out how far the wall clock is set back, by what it shows beside the steady clock. One
// thread.
class SetBack {
 public:
  // Returns by how much the wall clock was set back since the last look: zero, unless it was.
  Duration Look(TimePoint steady, absl::Time wall);

 private:
  std::optional<absl::Duration> ahead_;  // of the wall clock, at the last look
};

// Calls `restart` once the wall clock has been set back by more than a minute, on a thread of its
// own. gRPC and absl time their waits by that clock: what was begun before lasts so much longer,
// and nothing but a new process ends it.
class ClockWatch {
 public:
  explicit ClockWatch(std::function<void(Duration back)> restart);

 private:
  std::jthread thread_;
};

// Replaces this process by a new one of the same program, with these arguments (ended by a null
// pointer) and the same process ID. Ends the process where that cannot be done.
[[noreturn]] void StartAgain(char* const* arguments);

}  // namespace macaw::cli
