#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"

namespace macaw::worker {

// The time for which a call has had no answer, told in the log: why, when it begins and then at
// growing intervals; and once when the server has answered. One thread.
class Outage {
 public:
  using Tell = std::function<void(const std::string&)>;
  static constexpr Duration kFirstInterval = std::chrono::seconds(10);
  static constexpr Duration kLongestInterval = std::chrono::hours(1);

  // `clock` must outlive it.
  Outage(const Clock& clock, Tell tell) : clock_(clock), tell_(std::move(tell)) {}

  void NoAnswer(const absl::Status& why) {
    const TimePoint now = clock_.Now();
    if (!began_.has_value()) {
      began_ = now;
      tell_(absl::StrCat("server_lost trying_again reason=\"", why.message(), "\""));
    } else if (now >= next_) {
      tell_(absl::StrCat("server_still_lost seconds=", WholeSeconds(now), " reason=\"",
                         why.message(), "\""));
      interval_ = std::min(2 * interval_, kLongestInterval);
    } else {
      return;
    }
    next_ = now + interval_;
  }
  void Answered() {
    if (!began_.has_value()) return;
    tell_(absl::StrCat("server_back seconds=", WholeSeconds(clock_.Now())));
    began_.reset();
    interval_ = kFirstInterval;
  }

 private:
  int64_t WholeSeconds(TimePoint now) const {
    return std::chrono::duration_cast<std::chrono::seconds>(now - *began_).count();
  }

  const Clock& clock_;
  const Tell tell_;
  std::optional<TimePoint> began_;
  TimePoint next_{};
  Duration interval_ = kFirstInterval;
};

}  // namespace macaw::worker
