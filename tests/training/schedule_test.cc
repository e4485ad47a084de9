#include "training/api/schedule.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

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

// torch.optim.lr_scheduler.CosineAnnealingLR(T_max, eta_min) of PyTorch 1.13, at lr 1.
TEST(ScheduleFactor, OfACosineIsPyTorchsAndStillTrainsInItsLastRound) {
  const std::vector<double> ten = {
      1.0, 0.9755282581475768,  0.9045084971874737, 0.7938926261462366,  0.6545084971874737,
      0.5, 0.34549150281252633, 0.2061073738537635, 0.09549150281252633, 0.024471741852423234};
  const Schedule cosine{.kind = "cosine", .rounds = 10};
  for (uint32_t round = 1; round <= 10; ++round)
    EXPECT_NEAR(ScheduleFactor(cosine, round), ten[round - 1], 1e-15) << round;
  const std::vector<double> four = {1.0, 0.8901650429449552, 0.625, 0.3598349570550447};
  const Schedule floored{.kind = "cosine", .rounds = 4, .floor = 0.25};
  for (uint32_t round = 1; round <= 4; ++round)
    EXPECT_NEAR(ScheduleFactor(floored, round), four[round - 1], 1e-15) << round;
}

TEST(ScheduleFactor, OfACosineIsItsFloorBehindItsRounds) {
  const Schedule cosine{.kind = "cosine", .rounds = 10, .floor = 0.2};
  EXPECT_DOUBLE_EQ(ScheduleFactor(cosine, 6), 0.6);
  EXPECT_NEAR(ScheduleFactor(cosine, 11), 0.2, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 500), 0.2, 1e-15);
}

// Whatever the schedule, the first and the last round train.
TEST(ScheduleFactor, IsAboveZeroInTheFirstAndInTheLastRound) {
  for (const uint32_t rounds : {1u, 2u, 3u, 10u, 1000u}) {
    for (const uint32_t warmup : {0u, 1u, 2u, 9u, 10u, 2000u}) {
      for (const char* kind : {"constant", "step", "exponential", "cosine"}) {
        const Schedule schedule{
            .kind = kind, .gamma = 0.9, .every = 3, .rounds = rounds, .warmup_rounds = warmup};
        EXPECT_GT(ScheduleFactor(schedule, 1), 0) << kind << rounds << " " << warmup;
        EXPECT_GT(ScheduleFactor(schedule, rounds), 0) << kind << rounds << " " << warmup;
        EXPECT_FALSE(FirstIdleRound(schedule, rounds).has_value()) << kind;
      }
    }
  }
}

TEST(FirstIdleRound, IsTheFirstThatTrainsNothing) {
  const Schedule cosine{.kind = "cosine", .rounds = 4};
  EXPECT_EQ(FirstIdleRound(cosine, 4), std::nullopt);
  EXPECT_EQ(FirstIdleRound(cosine, 5), 5u);
  EXPECT_EQ(FirstIdleRound(cosine, 500), 5u);
  EXPECT_EQ(FirstIdleRound({.kind = "cosine", .rounds = 7, .warmup_rounds = 3}, 500), 8u);
  EXPECT_EQ(FirstIdleRound({.kind = "cosine", .rounds = 4, .floor = 0.1}, 500), std::nullopt);
  EXPECT_EQ(FirstIdleRound({.kind = "step", .gamma = 0, .every = 10}, 500), 11u);
  EXPECT_EQ(FirstIdleRound({.kind = "exponential", .gamma = 0.5}, 500), std::nullopt);
  EXPECT_EQ(FirstIdleRound({.kind = "exponential", .gamma = 0.5}, 2000), 1076u);  // 2^-1075
  EXPECT_EQ(FirstIdleRound(cosine, 0), std::nullopt);
}

TEST(LocalSchedule, TakesTheRunsRoundsWhereACosineHasNoneOfItsOwn) {
  RunPlan run{.rounds = 10};
  run.local.lr_schedule = {.kind = "cosine"};
  EXPECT_EQ(LocalSchedule(run).rounds, 10u);
  run.local.lr_schedule.rounds = 4;
  EXPECT_EQ(LocalSchedule(run).rounds, 4u);
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
