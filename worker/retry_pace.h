#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/random.h"

namespace macaw::worker {

// The pauses between the tries of a call that gets no answer (exponential back-off). Each pause is
// drawn between half and one and a half times its mean, so that workers that lost the server at the
// same time do not come back at the same time. One thread.
class RetryPace {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(50);

  // `every`: the mean of the first pause, as the server asks for. 0: the server has not said; then
  // it is kFirst. The mean doubles each time, up to `longest`, or stays where it began beyond that.
  // Equal seeds draw equal pauses; `call` separates the calls of one seed.
  RetryPace(Duration every, Duration longest, uint64_t seed, uint64_t call)
      : mean_(every > Duration{} ? every : kFirst),
        longest_(std::max(mean_, longest)),
        draws_(StreamKey{.seed = seed, .purpose = Purpose::kPlacement, .extra = call}) {}

  Duration Next() {
    const Duration mean = mean_;
    mean_ = std::min(2 * mean_, longest_);
    return FromSeconds(ToSeconds(mean) * (0.5 + draws_.Uniform()));
  }

 private:
  Duration mean_;
  Duration longest_;
  RandomStream draws_;
};

}  // namespace macaw::worker
