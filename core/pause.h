#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "core/clock.h"

namespace macaw {

// Waits for `time`, or until a stop is requested. Returns true if it was. Counts by the steady
// clock: absl's timed waits count by the wall clock, so one of them lasts a day longer when that
// clock is set back by a day.
inline bool PauseUnlessStopped(const std::stop_token& stop, Duration time) {
  constexpr Duration kLongest = std::chrono::hours(24 * 365);  // a sum with "now" must not overflow
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, std::min(time, kLongest), [] { return false; });
  return stop.stop_requested();
}

}  // namespace macaw
