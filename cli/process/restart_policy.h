#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "core/clock.h"

namespace macaw::cli {

// When a worker that died is started again, and when that has become pointless. Pure: the caller
// brings the time.
class RestartPolicy {
 public:
  static constexpr size_t kLimit = 5;
  static constexpr Duration kLimitWindow = std::chrono::minutes(10);
  static constexpr Duration kBackOffWindow = std::chrono::seconds(10);

  // The worker died: how long to wait before its next start; nothing once it has died more than
  // kLimit times within kLimitWindow while the run got nowhere.
  std::optional<Duration> OnDeath(TimePoint now) {
    deaths_.push_back(now);
    while (now - deaths_.front() > kLimitWindow) deaths_.pop_front();
    const auto since = [&](TimePoint start) {
      return static_cast<size_t>(
          std::count_if(deaths_.begin(), deaths_.end(), [&](TimePoint t) { return t > start; }));
    };
    if (since(last_progress_) > kLimit) return std::nullopt;
    return kBackOff[std::min(since(now - kBackOffWindow), kBackOff.size()) - 1];
  }
  // The run moved on (a round was closed): deaths before do not count towards the limit.
  void OnProgress(TimePoint now) { last_progress_ = now; }

 private:
  static constexpr std::array<Duration, 5> kBackOff = {
      std::chrono::milliseconds(0), std::chrono::milliseconds(100), std::chrono::milliseconds(500),
      std::chrono::seconds(1), std::chrono::seconds(2)};
  std::deque<TimePoint> deaths_;
  TimePoint last_progress_ = TimePoint::min();
};

}  // namespace macaw::cli
