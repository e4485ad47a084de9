#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace macaw {
namespace {

TEST(Half, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = FromHalf(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FromHalf(ToHalf(value))));
    } else {
      ASSERT_EQ(ToHalf(value), half) << value;
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(FromHalf(0x3c00), 1.0f);
  EXPECT_EQ(FromHalf(0xc000), -2.0f);
  EXPECT_EQ(FromHalf(0x7bff), 65504.0f);
  EXPECT_EQ(FromHalf(0x0400), 0x1p-14f);
  EXPECT_EQ(FromHalf(0x0001), 0x1p-24f);
  EXPECT_EQ(FromHalf(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(ToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(ToHalf(-1e9f), 0xfc00);
}

// Between two neighbours the nearer one is taken, and the even one in the middle.
TEST(Half, RoundsToTheNearestAndToEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (FromHalf(low) + FromHalf(high)) / 2;  // exact
    ASSERT_EQ(ToHalf(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(ToHalf(std::nextafterf(middle, 0)), low) << low;
    ASSERT_EQ(ToHalf(std::nextafterf(middle, 1e9f)), high) << low;
    ASSERT_EQ(ToHalf(-middle), 0x8000 | (low % 2 == 0 ? low : high)) << low;
  }
}

}  // namespace
}  // namespace macaw
