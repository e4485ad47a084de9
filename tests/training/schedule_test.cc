#include "training/api/schedule.h"

#include <gtest/gtest.h>

namespace macaw::training {
namespace {

TEST(ScheduleFactor, BeginsWithOneForEveryKind) {
  for (const char* kind : {"constant", "step", "exponential", "cosine"}) {
    EXPECT_EQ(ScheduleFactor({.kind = kind, .gamma = 0.5, .rounds = 10}, 1), 1) << kind;
  }
}

TEST(ScheduleFactor, StepsAndDecays) {
  const Schedule step{.kind = "step", .gamma = 0.5, .every = 3};
  EXPECT_EQ(ScheduleFactor(step, 3), 1);
  EXPECT_EQ(ScheduleFactor(step, 4), 0.5);
  EXPECT_EQ(ScheduleFactor(step, 7), 0.25);
  EXPECT_DOUBLE_EQ(ScheduleFactor({.kind = "exponential", .gamma = 0.9}, 4), 0.9 * 0.9 * 0.9);
  EXPECT_EQ(ScheduleFactor({.kind = "constant", .gamma = 0.5}, 99), 1);
}

TEST(ScheduleFactor, OfACosineEndsAtItsFloor) {
  const Schedule cosine{.kind = "cosine", .rounds = 11, .floor = 0.2};
  EXPECT_DOUBLE_EQ(ScheduleFactor(cosine, 6), 0.6);
  EXPECT_NEAR(ScheduleFactor(cosine, 11), 0.2, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 500), 0.2, 1e-15);
}

TEST(ScheduleFactor, WarmsUpBeforeTheScheduleProper) {
  const Schedule warm{.kind = "exponential", .gamma = 0.5, .warmup_rounds = 3};
  EXPECT_DOUBLE_EQ(ScheduleFactor(warm, 1), 0.25);
  EXPECT_DOUBLE_EQ(ScheduleFactor(warm, 3), 0.75);
  EXPECT_EQ(ScheduleFactor(warm, 4), 1);
  EXPECT_EQ(ScheduleFactor(warm, 5), 0.5);
}

}  // namespace
}  // namespace macaw::training
