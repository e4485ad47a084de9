#pragma once

#include <bit>
#include <cstdint>

namespace macaw {

// IEEE 754 binary16, for processors without it. Conversions are exact or rounded half to even; what
// is too large becomes infinity, and NaN stays NaN.
constexpr float FromHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31u, fraction = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;  // exact
  return sign != 0 ? -small : small;
}

constexpr uint16_t ToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (size >= 0x477ff000u) return sign | 0x7c00u;  // from 65520 on
  if (size < 0x38800000u) {                        // below 2^-14: a multiple of 2^-24
    if (size < 0x33000000u) return sign;           // below 2^-25
    const uint32_t shift = 126 - (size >> 23);     // 14 to 24
    const uint32_t fraction = (size & 0x7fffffu) | 0x800000u;
    const uint32_t rest = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
    uint32_t result = fraction >> shift;
    if (rest > half || (rest == half && (result & 1) != 0)) ++result;
    return static_cast<uint16_t>(sign | result);
  }
  const uint32_t rest = size & 0x1fffu;
  uint32_t result = (size >> 13) - (112u << 10);
  if (rest > 0x1000u || (rest == 0x1000u && (result & 1) != 0)) ++result;
  return static_cast<uint16_t>(sign | result);
}

}  // namespace macaw
