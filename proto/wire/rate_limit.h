#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "proto/wire/limits.h"

namespace macaw::wire {

// The most bytes that one direction of a link may move in a second. Whoever has moved bytes counts
// them, and waits before the next until their time is over. So it holds on the average of some
// seconds; at once move as many bytes as may in a second. Thread-safe.
class RateLimit {
 public:
  // `bytes_per_second` 0: there is no limit. `clock` must outlive it.
  RateLimit(uint64_t bytes_per_second, const Clock& clock)
      : bytes_per_second_(bytes_per_second), clock_(clock) {}

  void Count(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (bytes_per_second_ == 0) return;
    const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second_);
    absl::MutexLock lock(&mutex_);
    free_ = std::max(free_, clock_.Now()) + FromSeconds(seconds);
  }
  // How long to wait before the next bytes move.
  Duration Wait() const ABSL_LOCKS_EXCLUDED(mutex_) {
    if (bytes_per_second_ == 0) return Duration{};
    absl::MutexLock lock(&mutex_);
    return std::max(Duration{}, Duration(free_ - clock_.Now()));
  }
  // Of so many bytes, those that may move at once.
  uint64_t AtOnce(uint64_t bytes) const {
    return bytes_per_second_ == 0 ? bytes
                                  : std::min(bytes, std::max(bytes_per_second_, kLeastChunkBytes));
  }

 private:
  const uint64_t bytes_per_second_;
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  TimePoint free_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace macaw::wire
