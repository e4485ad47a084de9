#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/clock.h"

namespace macaw::cli {

// Decides whether a run is started again whose server has ended with kExitFailed. A full disk or a
// port that is taken may be put right, and the runs behind it would meet the same. A model that
// needs more memory than there is ends its server with the same code at each start. Pure.
class StartPolicy {
 public:
  static constexpr uint32_t kStarts = 120;  // some ten minutes
  static constexpr Duration kPause = std::chrono::seconds(5);

  // `starts`: as many in a row that bring the run no further; 0: without a bound.
  explicit StartPolicy(uint32_t starts = kStarts) : starts_(starts) {}

  // Records such an end of a run that has done these rounds. Returns how long to wait before the
  // next start, or nothing: the run has failed.
  std::optional<Duration> OnFailure(uint32_t rounds) {
    in_vain_ = rounds > rounds_ ? 0 : in_vain_ + 1;
    rounds_ = std::max(rounds_, rounds);  // a resume may do rounds again
    if (starts_ > 0 && in_vain_ >= starts_) return std::nullopt;
    return kPause;
  }
  uint32_t in_vain() const { return in_vain_; }

 private:
  uint32_t starts_;
  uint32_t in_vain_ = 0, rounds_ = 0;
};

}  // namespace macaw::cli
