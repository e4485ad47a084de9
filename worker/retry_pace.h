#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/random.h"

namespace macaw::worker {

// The pauses between the tries of a call that gets no answer. Each pause is drawn between half and
// one and a half times its mean, so that workers that lost the server at the same time do not come
// back at the same time. One thread.
class RetryPace {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(50);
  static constexpr Duration kLongest = std::chrono::seconds(2);

  // `every`: the mean pause that the server asks for. 0: the server has not said; then the mean is
  // kFirst and doubles each time, up to kLongest. Equal seeds draw equal pauses; `call` separates
  // the calls of one seed.
  RetryPace(Duration every, uint64_t seed, uint64_t call)
      : every_(every),
        mean_(every > Duration{} ? every : kFirst),
        draws_(StreamKey{.seed = seed, .purpose = Purpose::kPlacement, .extra = call}) {}

  Duration Next() {
    const Duration mean = mean_;
    if (every_ <= Duration{}) mean_ = std::min(2 * mean_, kLongest);
    return FromSeconds(ToSeconds(mean) * (0.5 + draws_.Uniform()));
  }

 private:
  Duration every_;
  Duration mean_;
  RandomStream draws_;
};

}  // namespace macaw::worker
