#pragma once

#include <algorithm>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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
// without a hand on the node. The reason is told when it changes by more than its numbers (a
// message may say what time it is), and each hour. One thread.
class StandBy {
 public:
  using Tell = std::function<void(const std::string&)>;
  using Pause = std::function<void(Duration)>;

  // `pause` waits so long, or less when the node is stopped. Equal seeds draw equal pauses.
  StandBy(StandByPauses pauses, uint64_t seed, Tell tell, Pause pause)
      : pauses_(pauses), seed_(seed), tell_(std::move(tell)), pause_(std::move(pause)) {}

  void Wait(const absl::Status& why) {
    if (std::string kind = KindOf(why); kind != kind_) Begin(std::move(kind));
    const Duration pause = pace_.Next();
    if (untold_ <= Duration{}) {
      tell_(absl::StrCat("stands_by reason=\"", why.message(), "\""));
      untold_ = kTellEvery;
    }
    stands_by_ = true;
    untold_ -= pause;
    waited_ += pause;
    pause_(pause);
  }
  // The node works again. If the same reason ends that, the pauses grow on: a disk that is full
  // lets each session begin.
  void Works() {
    if (!stands_by_) return;
    tell_("works_again");
    stands_by_ = false;
    untold_ = {};
  }
  // A session has ended well: what was in the way is forgotten.
  void Passed() {
    Works();
    kind_.clear();
  }
  // For how long the present reason has let the node stand by.
  Duration waited() const { return waited_; }

 private:
  static constexpr Duration kTellEvery = std::chrono::hours(1);

  // The code and the words of a reason, without what begins with a digit: numbers, times, "2h5m".
  static std::string KindOf(const absl::Status& why) {
    std::string kind = absl::StrCat(static_cast<int>(why.code()), " ");
    bool number = false;
    for (const char c : why.message()) {
      const auto byte = static_cast<unsigned char>(c);
      number = absl::ascii_isdigit(byte) || (number && absl::ascii_isalnum(byte));
      if (!number) kind += c;
    }
    return kind;
  }

  void Begin(std::string kind) {
    kind_ = std::move(kind);
    untold_ = {};
    waited_ = {};
    pace_ = RetryPace(pauses_.first, pauses_.longest, seed_, ++begun_);
  }

  const StandByPauses pauses_;
  const uint64_t seed_;
  const Tell tell_;
  const Pause pause_;
  uint64_t begun_ = 0;
  std::string kind_;  // of the newest reason; "": there was none
  bool stands_by_ = false;
  Duration untold_{};  // until the reason is told again
  Duration waited_{};
  RetryPace pace_{pauses_.first, pauses_.longest, seed_, 0};
};

}  // namespace macaw::worker
