#include "virtual_time/clock.h"

#include <gtest/gtest.h>

namespace macaw::virtual_time {
namespace {

TEST(Clock, TakesTheTrafficOfAClientFromTheRound) {
  const ClockState end = {.now = 3, .traffic = {.down = 7, .up = 9}};
  const ClockState after =
      After(end, {.counted = 4, .drawn = 5, .bytes_up = 100, .bytes_down = 1000});
  EXPECT_EQ(after.now, 3);
  EXPECT_EQ(after.traffic, (Traffic{.down = 200, .up = 25}));
}

TEST(Clock, KeepsTheTrafficOfARoundWithoutClients) {
  const ClockState end = {.traffic = {.down = 7, .up = 9}};
  EXPECT_EQ(After(end, {}), end);
  const ClockState lost = After(end, {.drawn = 2, .bytes_down = 20});
  EXPECT_EQ(lost.traffic, (Traffic{.down = 10, .up = 9}));
}

}  // namespace
}  // namespace macaw::virtual_time
