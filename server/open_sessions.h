#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/ids.h"

namespace macaw::server {

// The open sessions, for threads that must not wait for the engine's thread. Also limits the rate
// of heartbeats of each session, so that a flood of them never reaches the engine. Thread-safe.
class OpenSessions {
 public:
  explicit OpenSessions(Duration lease_timeout)
      : longest_(lease_timeout / 3),
        shortest_(std::min<Duration>(longest_, std::chrono::seconds(1))),
        refill_(shortest_ / kTimesTheRate) {}

  // `owner`: the name of the session's node.
  void Add(SessionId session, const std::string& owner) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    sessions_.try_emplace(session, Open{.owner = owner});
  }
  void Remove(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    sessions_.erase(session);
  }
  bool Knows(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return sessions_.contains(session);
  }

  // The mean of the first pause after which a node should look for a lost server. Sessions are
  // opened one after another and get a pause that fits their number, so that all of them come back
  // at about kComebacksPerSecond.
  Duration ReconnectEvery() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return Duration(std::chrono::seconds(sessions_.size())) / kComebacksPerSecond;
  }

  // When a session should send its next heartbeat: so that all sessions together send about
  // kBeatsPerSecond, but after a second at the earliest, and three times a lease at least.
  Duration HeartbeatEvery() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::clamp<Duration>(Duration(std::chrono::seconds(sessions_.size())) / kBeatsPerSecond,
                                shortest_, longest_);
  }

  std::optional<std::string> OwnerOf(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(session);
    return it != sessions_.end() ? std::optional(it->second.owner) : std::nullopt;
  }

  enum class Beat : uint8_t { kUnknown, kDue, kTooSoon };
  // Counts a heartbeat. kTooSoon: the session sends them at more than kTimesTheRate times the
  // normal rate, and its burst of kBurst is used up.
  Beat Hear(SessionId session, TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return Beat::kUnknown;
    TimePoint& full = it->second.full;
    full = std::max(full, now);
    if (full - now > kBurst * refill_) return Beat::kTooSoon;
    full += refill_;
    return Beat::kDue;
  }

 private:
  static constexpr int kTimesTheRate = 10;
  static constexpr int kBurst = 20;
  // A heartbeat over TLS takes 0.15 ms of a processor.
  static constexpr int kBeatsPerSecond = 1000;
  // A TLS handshake with certificates from both sides takes 4 ms of a processor.
  static constexpr int kComebacksPerSecond = 100;

  struct Open {
    std::string owner;
    TimePoint full{};  // when the token bucket for its heartbeats will be full again
  };

  const Duration longest_, shortest_;  // between two heartbeats
  const Duration refill_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<SessionId, Open> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::server
