#pragma once

#include <algorithm>

#include "core/clock.h"

namespace macaw {

// How often something may happen: `burst` times at once, and once in each `every` on the average.
struct Allowance {
  Duration every{};
  int burst = 1;
};

// Counts what happens against an allowance. It is full at first. One thread.
class TokenBucket {
 public:
  // Takes a token. False: there is none now.
  bool Take(const Allowance& allowance, TimePoint now) {
    full_ = std::max(full_, now);
    if (full_ - now > (allowance.burst - 1) * allowance.every) return false;
    full_ += allowance.every;
    return true;
  }
  // Gives back a token that was taken.
  void Return(const Allowance& allowance) { full_ -= allowance.every; }
  // Takes tokens that need not be there: they are missing later.
  void Charge(const Allowance& allowance, int tokens, TimePoint now) {
    full_ = std::max(full_, now) + tokens * allowance.every;
  }
  // Whether it is as full as at first.
  bool IsFull(TimePoint now) const { return full_ <= now; }

 private:
  TimePoint full_{};  // when it will be full again
};

}  // namespace macaw
