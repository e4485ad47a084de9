#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace macaw {

// How many of the drawn clients must be counted: this share of them, but at least one.
inline uint64_t NeededOf(double quorum, uint64_t drawn) {
  // 0.7 times 10 is 7 clients, although the product of the doubles is a little more than 7.
  const double share = std::ceil(quorum * static_cast<double>(drawn) - 1e-9);
  return std::min(drawn, std::max<uint64_t>(1, static_cast<uint64_t>(std::max(0.0, share))));
}

}  // namespace macaw
