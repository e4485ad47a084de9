#include "virtual_time/clock.h"

#include <gtest/gtest.h>

namespace macaw::virtual_time {
namespace {

TEST(Clock, GoesOnByTheRoundsSeconds) {
  const ClockState first = After({}, {.seconds = 2.5});
  EXPECT_EQ(first.now, 2.5);
  EXPECT_EQ(After(first, {.seconds = 1}).now, 3.5);
}

TEST(Clock, TakesTheTrafficOfAClientFromTheRound) {
  const ClockState after =
      After({.traffic = {.down = 7, .up = 9}},
            {.seconds = 1, .counted = 4, .drawn = 5, .bytes_up = 100, .bytes_down = 1000});
  EXPECT_EQ(after.traffic, (Traffic{.down = 200, .up = 25}));
}

TEST(Clock, KeepsTheTrafficOfARoundWithoutClients) {
  const ClockState before = {.traffic = {.down = 7, .up = 9}};
  EXPECT_EQ(After(before, {.seconds = 1}).traffic, before.traffic);
  const ClockState lost = After(before, {.seconds = 1, .drawn = 2, .bytes_down = 20});
  EXPECT_EQ(lost.traffic, (Traffic{.down = 10, .up = 9}));
}

}  // namespace
}  // namespace macaw::virtual_time
