#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/random.h"

namespace macaw::worker {

// How long to wait before each next try of a call that nobody answered. Each pause is drawn between
// half and one and a half of its mean, so that workers that lost the server together do not come
// back together. One thread.
class RetryPace {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(50);
  static constexpr Duration kLongest = std::chrono::seconds(2);

  // `every`: the mean that the server asks for. 0: it has not said; kFirst then, and twice as long
  // each time, up to kLongest. Equal seeds draw equal pauses; `call` tells the calls of one seed
  // apart.
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
