#pragma once

#include <chrono>
#include <cmath>

namespace macaw {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using Seconds = std::chrono::duration<double>;

// Monotonic time, injected so that tests can control it. Thread-safe. Durations are sent between
// processes, time points never are.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The process's steady clock. Never destroyed.
const Clock& SteadyClock();

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// At most kLongestDuration, to which a time point can still be added; NaN is 0.
inline constexpr Duration kLongestDuration = std::chrono::hours(24 * 365 * 100);
inline Duration FromSeconds(double s) {
  const double most = ToSeconds(kLongestDuration);
  if (!(std::abs(s) < most))
    return s > 0 ? kLongestDuration : s < 0 ? -kLongestDuration : Duration{};
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace macaw
