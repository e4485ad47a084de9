#include "core/normal_tail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/digest.h"
#include "core/vector.h"

namespace macaw {
namespace {

// Box-Muller with the standard library, in extended precision.
std::pair<long double, long double> ByTheLibrary(uint64_t radius_word, uint64_t angle_word) {
  const long double u = (static_cast<long double>(radius_word) + 0.5L) * 0x1p-64L;
  const long double radius = std::sqrt(-2 * std::log(u));
  const long double quarter = std::numbers::pi_v<long double> / 4;
  const int64_t inside = static_cast<int64_t>(angle_word << 2) >> 11;
  const long double angle = static_cast<long double>(inside) * quarter * 0x1p-52L +
                            static_cast<long double>(angle_word >> 62) * 2 * quarter;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

TEST(NormalsOf, EndWhereTheProbabilityOfMoreIsTenToTheMinus20) {
  const double most = NormalsOf(0, 0).first;
  EXPECT_NEAR(most, std::sqrt(130 * std::numbers::ln2), 1e-12);
  EXPECT_LT(std::erfc(most / std::numbers::sqrt2), 1e-20);
  // One value in 2^32 is beyond what 32 bits of radius can give.
  EXPECT_GT(std::hypot(NormalsOf(UINT64_C(0xffffffff), 12345).first,
                       NormalsOf(UINT64_C(0xffffffff), 12345).second),
            6.66);
}

TEST(NormalsOf, AreThoseOfTheLibrary) {
  RandomStream stream({.seed = 3});
  std::vector<uint64_t> radii = {0, 1, 2, UINT64_MAX / 2, UINT64_MAX};
  for (int i = 0; i < 20000; ++i) radii.push_back(stream.NextU64() >> stream.Below(64));
  for (const uint64_t radius : radii) {
    const uint64_t angle = stream.NextU64();
    const auto [x, y] = NormalsOf(radius, angle);
    const auto [a, b] = ByTheLibrary(radius, angle);
    EXPECT_NEAR(x, static_cast<double>(a), 1e-14) << radius << " " << angle;
    EXPECT_NEAR(y, static_cast<double>(b), 1e-14) << radius << " " << angle;
  }
}

TEST(FillNormalWithTail, ValueIDependsOnIAlone) {
  std::vector<double> all(700);
  RandomStream stream({.seed = 6});
  FillNormalWithTail(stream, all);
  for (const size_t count : {1u, 2u, 255u, 256u, 257u, 600u}) {
    std::vector<double> some(count);
    RandomStream again({.seed = 6});
    FillNormalWithTail(again, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << count;
  }
}

TEST(FillNormalWithTail, HasTheseBits) {
  std::vector<double> values(1 << 16);
  RandomStream stream({.seed = 1});
  FillNormalWithTail(stream, values);
  EXPECT_EQ(Checksum(BytesOf(std::span(values))), UINT64_C(18228417740220379111));
}

TEST(FillNormalWithTail, IsStandardNormal) {
  const size_t n = 1 << 22;
  std::vector<double> values(n);
  RandomStream stream({.seed = 2});
  FillNormalWithTail(stream, values);
  double moments[5] = {}, partners = 0;
  double beyond[5] = {};
  for (size_t i = 0; i < n; ++i) {
    const double x = values[i];
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / n;
    for (int k = 1; k <= 4; ++k) beyond[k] += std::fabs(x) > k ? 1 : 0;
    if (i % 2 == 1) partners += x * values[i - 1] / n;
  }
  EXPECT_NEAR(moments[1], 0, 0.0025);
  EXPECT_NEAR(moments[2], 1, 0.0035);
  EXPECT_NEAR(moments[3], 0, 0.01);
  EXPECT_NEAR(moments[4], 3, 0.025);
  EXPECT_NEAR(partners, 0, 0.0025);
  for (int k = 1; k <= 4; ++k) {
    const double expected = n * std::erfc(k / std::numbers::sqrt2);
    EXPECT_NEAR(beyond[k], expected, 5 * std::sqrt(expected)) << k;
  }
}

}  // namespace
}  // namespace macaw
