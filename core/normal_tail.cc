#include "core/normal_tail.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

// Box-Muller in double. libm is not used, because its bits differ between versions and processors;
// the square root is exact everywhere.
namespace macaw {
namespace {

// ln(x) for 0 < x <= 1, to about one unit in the last place: x = 2^e · m with m in [√½, √2), and
// ln m = 2·artanh((m − 1)/(m + 1)) as its series.
double NaturalLog(double x) {
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  const auto bits = std::bit_cast<uint64_t>(x);
  const int64_t exponent = static_cast<int64_t>(bits - kRootOfHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  const double s = (m - 1) / (m + 1), z = s * s;  // z < 0.0295
  double series = 0;
  for (int k = 21; k >= 3; k -= 2) series = (series + 1.0 / k) * z;
  return static_cast<double>(exponent) * 0.693147180559945309417 + 2 * s * (1 + series);
}

// Of an angle in −π/4 … π/4.
std::pair<double, double> CosineAndSine(double x) {
  const double z = x * x;
  double cosine = 1, sine = 1;
  for (int k = 18; k >= 2; k -= 2) cosine = 1 - cosine * z / (k * (k - 1));
  for (int k = 19; k >= 3; k -= 2) sine = 1 - sine * z / (k * (k - 1));
  return {cosine, sine * x};
}

}  // namespace

std::pair<double, double> NormalsOf(uint64_t radius_word, uint64_t angle_word) {
  constexpr double kQuarterOfPi = 0.785398163397448309616;
  // The middle of the word's part of (0, 1); large words are rounded to 53 bits.
  const double u = (static_cast<double>(radius_word) + 0.5) * 0x1p-64;
  const double radius = std::sqrt(-2 * NaturalLog(u));
  // The two upper bits are the quadrant, the next 53 the angle inside it.
  const int64_t inside = static_cast<int64_t>(angle_word << 2) >> 11;
  const auto [cosine, sine] = CosineAndSine(static_cast<double>(inside) * (kQuarterOfPi * 0x1p-52));
  switch (angle_word >> 62) {
    case 0:
      return {radius * cosine, radius * sine};
    case 1:
      return {-radius * sine, radius * cosine};
    case 2:
      return {-radius * cosine, -radius * sine};
    default:
      return {radius * sine, -radius * cosine};
  }
}

void FillNormalWithTail(RandomStream& stream, std::span<double> out) {
  std::array<uint64_t, 256> words;
  while (!out.empty()) {
    const size_t count = std::min(out.size(), words.size());
    stream.FillU64(std::span(words).first((count + 1) / 2 * 2));
    for (size_t i = 0; i < count; i += 2) {
      const auto [first, second] = NormalsOf(words[i], words[i + 1]);
      out[i] = first;
      if (i + 1 < count) out[i + 1] = second;
    }
    out = out.subspan(count);
  }
}

}  // namespace macaw
