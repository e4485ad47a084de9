#include "core/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace macaw {
namespace {

TEST(FromSeconds, IsExactToTheNanosecondWhereItFits) {
  EXPECT_EQ(FromSeconds(0), Duration{});
  EXPECT_EQ(FromSeconds(1.5), std::chrono::milliseconds(1500));
  EXPECT_EQ(FromSeconds(-2), -std::chrono::seconds(2));
  EXPECT_EQ(FromSeconds(1e9), std::chrono::seconds(1'000'000'000));
}

TEST(FromSeconds, WhatIsTooLongIsTheLongestAndStillAdds) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double seconds : {1e10, 1e18, 1e300, kInfinity}) {
    EXPECT_EQ(FromSeconds(seconds), kLongestDuration) << seconds;
    EXPECT_EQ(FromSeconds(-seconds), -kLongestDuration) << seconds;
    EXPECT_GT(SteadyClock().Now() + FromSeconds(seconds), SteadyClock().Now());
  }
  EXPECT_EQ(FromSeconds(std::numeric_limits<double>::quiet_NaN()), Duration{});
}

}  // namespace
}  // namespace macaw
