#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "core/clock.h"

namespace macaw::cli {

// Decides when to restart a process that died, and when to give up. Pure: the caller passes the
// time.
class RestartPolicy {
 public:
  // Which deaths delay the next start: all deaths of the last seconds, or only those since the run
  // made progress. Of several workers, one may die at every start while the others finish rounds. A
  // single server that has finished a round was healthy until then.
  enum class BackOff : uint8_t { kAllDeaths, kFruitlessDeaths };

  static constexpr size_t kLimit = 5;
  static constexpr Duration kLimitWindow = std::chrono::minutes(10);
  static constexpr Duration kBackOffWindow = std::chrono::seconds(10);

  explicit RestartPolicy(BackOff back_off = BackOff::kAllDeaths) : back_off_(back_off) {}

  // Records a death. Returns how long to wait before the next start, or nothing if the process has
  // died more than kLimit times within kLimitWindow without progress of the run.
  std::optional<Duration> OnDeath(TimePoint now) {
    deaths_.push_back(now);
    while (now - deaths_.front() > kLimitWindow) deaths_.pop_front();
    const auto since = [&](TimePoint start) {
      return static_cast<size_t>(
          std::count_if(deaths_.begin(), deaths_.end(), [&](TimePoint t) { return t > start; }));
    };
    if (since(last_progress_) > kLimit) return std::nullopt;
    TimePoint start = now - kBackOffWindow;
    if (back_off_ == BackOff::kFruitlessDeaths) start = std::max(start, last_progress_);
    return kBackOff[std::clamp<size_t>(since(start), 1, kBackOff.size()) - 1];
  }
  // Records progress (a round was closed): earlier deaths do not count towards the limit.
  void OnProgress(TimePoint now) { last_progress_ = now; }

 private:
  static constexpr std::array<Duration, 5> kBackOff = {
      std::chrono::milliseconds(0), std::chrono::milliseconds(100), std::chrono::milliseconds(500),
      std::chrono::seconds(1), std::chrono::seconds(2)};
  BackOff back_off_;
  std::deque<TimePoint> deaths_;
  TimePoint last_progress_ = TimePoint::min();
};

}  // namespace macaw::cli
