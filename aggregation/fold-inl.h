#pragma once

#include <bit>
#include <cstdint>

#include "device/kernel.h"

// What happens to one element, for the loops of processors (fold_kernels.cc) and devices
// (device_sum-inl.h): the same source, so the same bits. Private to this room.
#define MACAW_ELEMENT MACAW_KERNEL __attribute__((always_inline))

namespace macaw::aggregation {

inline constexpr double kRounder = 0x1.8p52;
inline constexpr auto kRounderBits = std::bit_cast<int64_t>(kRounder);

// x, rounded half to even, from the sum x + kRounder; |x| < 2^51 (fold_kernels.h says why).
MACAW_ELEMENT int64_t Integer(double rounded_plus_rounder) {
  return std::bit_cast<int64_t>(rounded_plus_rounder) - kRounderBits;
}

// The integer that a contribution's value adds to a sum; scale = m·w·2^bits.
MACAW_ELEMENT int64_t Rounded(float value, double scale) {
  return Integer(double{value} * scale + kRounder);
}

// OrderedKey (fold_kernels.h).
MACAW_ELEMENT int64_t KeyOf(double value) {
  const auto bits = std::bit_cast<int64_t>(value);
  return bits ^ ((bits >> 63) & INT64_MAX);  // negative numbers grow downwards
}

// Magnitudes as integers: in the order of |value|, infinity and NaN above all finite ones.
MACAW_ELEMENT uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & INT32_MAX;
}

}  // namespace macaw::aggregation
