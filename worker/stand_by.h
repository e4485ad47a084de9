#pragma once

#include <algorithm>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/clock.h"
#include "worker/retry_pace.h"

namespace macaw::worker {

// How long an enrolled node waits when it is refused: the mean of the first pause, which doubles
// from one to the next.
struct StandByPauses {
  Duration first = std::chrono::seconds(5);
  Duration longest = std::chrono::minutes(5);
};

// Waits for what stands between an enrolled node and its work: what its server says, a run that its
// owner does not accept or that does not fit its data, a disk that is full. All of these pass
// without a hand on the node. The reason is told when it changes, and each hour. One thread.
class StandBy {
 public:
  using Tell = std::function<void(const std::string&)>;
  using Pause = std::function<void(Duration)>;

  // `pause` waits so long, or less when the node is stopped. Equal seeds draw equal pauses.
  StandBy(StandByPauses pauses, uint64_t seed, Tell tell, Pause pause)
      : pauses_(pauses), seed_(seed), tell_(std::move(tell)), pause_(std::move(pause)) {}

  void Wait(const absl::Status& why) {
    if (why.message() != reason_) Begin(std::string(why.message()));
    const Duration pause = pace_.Next();
    if (untold_ <= Duration{}) {
      tell_(absl::StrCat("stands_by reason=\"", reason_, "\""));
      untold_ = kTellEvery;
    }
    untold_ -= pause;
    pause_(pause);
  }
  // The node works again.
  void Passed() {
    if (reason_.empty()) return;
    tell_("works_again");
    reason_.clear();
  }

 private:
  static constexpr Duration kTellEvery = std::chrono::hours(1);

  void Begin(std::string reason) {
    reason_ = std::move(reason);
    untold_ = {};
    pace_ = RetryPace(pauses_.first, pauses_.longest, seed_, ++begun_);
  }

  const StandByPauses pauses_;
  const uint64_t seed_;
  const Tell tell_;
  const Pause pause_;
  uint64_t begun_ = 0;
  std::string reason_;  // ""; nothing stands in the way
  Duration untold_{};   // until the reason is told again
  RetryPace pace_{pauses_.first, pauses_.longest, seed_, 0};
};

}  // namespace macaw::worker
