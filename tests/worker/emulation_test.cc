#include "worker/emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace macaw {
namespace {

TEST(Emulation, RatioAndCosAreThoseOfParrot) {
  const EmulatedPlace place{.slot = 2, .slots = 4, .rounds = 10};
  EXPECT_DOUBLE_EQ(EmulatedSlowdown({}, place, Round(3)), 1);
  EXPECT_DOUBLE_EQ(EmulatedSlowdown({.environment = "ratio", .ratio = 2}, place, Round(3)),
                   1 + 2 * 3.0 / 4);
  EXPECT_DOUBLE_EQ(EmulatedSlowdown({.environment = "cos", .ratio = 2}, place, Round(5)),
                   1 + 2 * (1 + std::cos(std::numbers::pi / 2 + 3)));
}

TEST(Emulation, SlowdownsOfSlotsMultiplyTheEnvironment) {
  const EmulationConfig config{.slowdown = {1, 3}, .environment = "ratio", .ratio = 1};
  EXPECT_DOUBLE_EQ(EmulatedSlowdown(config, {.slot = 1, .slots = 2}, Round(1)), 3 * 2);
  EXPECT_DOUBLE_EQ(EmulatedSlowdown(config, {.slot = 5, .slots = 6}, Round(1)), 2);
}

TEST(Emulation, PausesHaveTheirProbabilityAndAreReproducible) {
  const EmulationConfig config{.pause_probability = 0.1, .pause_seconds = 2, .seed = 4};
  int pauses = 0;
  for (uint64_t client = 0; client < 10000; ++client) {
    const double pause = EmulatedPause(config, Round(7), ClientId(client));
    EXPECT_TRUE(pause == 0 || pause == 2);
    EXPECT_EQ(pause, EmulatedPause(config, Round(7), ClientId(client)));
    pauses += pause > 0;
  }
  EXPECT_NEAR(pauses, 1000, 4 * std::sqrt(900));
}

}  // namespace
}  // namespace macaw
