#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

namespace macaw {

// ⌊fraction · n⌋ for the decimal that was written: neither a decimal fraction nor its product is
// exact in binary, so .29 · 100 gives 28.999999999999996. Requires fraction >= 0.
inline uint64_t FloorOf(double fraction, uint64_t n) {
  const double product = fraction * static_cast<double>(n);
  const double whole = std::round(product);
  const bool rounded = std::fabs(product - whole) <= 2 * DBL_EPSILON * whole;
  return static_cast<uint64_t>(rounded ? whole : std::floor(product));
}

}  // namespace macaw
