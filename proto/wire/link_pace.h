#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "proto/wire/limits.h"

namespace macaw::wire {

// How much of a blob to move before the other side's word that it has arrived: a slice, as many
// bytes as the connection has lately moved in a given time. So a slow connection never has more
// under way than it moves in some seconds: heartbeats and pings behind a slice come through, a
// connection that moves anything is told from a dead one, and little is lost when it breaks. A
// slice is sent in chunks, of which about four make one. Thread-safe.
class LinkPace {
 public:
  static constexpr uint64_t kFirstSlice = 64 << 10;
  static constexpr uint64_t kLeastSlice = kLeastChunkBytes;
  static constexpr uint64_t kMostGrowth = 8;  // from a slice to the next

  // `slice_time`: how long a slice should take.
  explicit LinkPace(Duration slice_time) : slice_seconds_(ToSeconds(slice_time)) {}

  uint64_t slice() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return slice_;
  }
  static uint64_t ChunkOf(uint64_t slice) {
    return std::clamp<uint64_t>(slice / 4, kLeastSlice, kChunkBytes);
  }

  // So many bytes have arrived, asked for or sent at once.
  void Moved(uint64_t bytes, Duration took) ABSL_LOCKS_EXCLUDED(mutex_) {
    const double seconds = std::max(ToSeconds(took), 1e-6);
    absl::MutexLock lock(&mutex_);
    // The last bytes of a blob say more about the time of a round trip than about the rate.
    if (2 * bytes < slice_ && seconds < slice_seconds_) return;
    const double fits = static_cast<double>(bytes) / seconds * slice_seconds_;
    const auto most = static_cast<double>(std::min(kMostSlice, kMostGrowth * slice_));
    slice_ = std::max(kLeastSlice, static_cast<uint64_t>(std::min(fits, most)));
  }
  // The connection broke, or nothing moved any more.
  void Failed() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    slice_ = std::max(kLeastSlice, std::min(slice_ / 4, kFirstSlice));
  }

 private:
  static constexpr uint64_t kMostSlice = uint64_t{1} << 40;

  const double slice_seconds_;
  mutable absl::Mutex mutex_;
  uint64_t slice_ ABSL_GUARDED_BY(mutex_) = kFirstSlice;
};

}  // namespace macaw::wire
