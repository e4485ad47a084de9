#include "training/api/round_local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "plan/local_steps.h"
#include "training/api/straggler.h"

namespace macaw::training {
namespace {

using testing::ElementsAre;

// A rate that is halved in each round.
RunPlan Halving(uint32_t steps, double qsr, uint32_t rounds = 4) {
  RunPlan run{.rounds = rounds};
  run.local.steps = steps;
  run.local.lr = 0.1;
  run.local.qsr = qsr;
  run.local.lr_schedule = {.kind = "exponential", .gamma = 0.5};
  return run;
}

std::vector<uint32_t> StepsOfRounds(const RunPlan& run) {
  std::vector<uint32_t> steps;
  for (uint32_t round = 1; round <= run.rounds; ++round)
    steps.push_back(RoundLocal(run, Round(round)).steps);
  return steps;
}

TEST(RoundLocal, HasTheRateOfTheRound) {
  const RunPlan run = Halving(7, 0);
  EXPECT_EQ(RoundLocal(run, Round(1)).lr, 0.1);
  EXPECT_EQ(RoundLocal(run, Round(3)).lr, 0.025);
  LocalConfig third = run.local;
  third.lr = 0.025;
  third.lr_schedule.rounds = run.rounds;
  EXPECT_EQ(RoundLocal(run, Round(3)), third);
  RunPlan cosine = run;
  cosine.local.lr_schedule = {.kind = "cosine"};  // over the rounds of the run
  EXPECT_DOUBLE_EQ(RoundLocal(cosine, Round(3)).lr, 0.05);
}

TEST(RoundLocal, WithoutTheQuadraticRuleHasTheStepsOfTheRun) {
  EXPECT_THAT(StepsOfRounds(Halving(7, 0)), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(StepsOfRounds(Halving(0, 0)), ElementsAre(0, 0, 0, 0)) << "epochs";
  EXPECT_THAT(StepsOfRounds(Halving(0, 0.2)), ElementsAre(0, 0, 0, 0));
}

TEST(QuadraticSteps, AreTheSquareOfAlphaOverTheRateAndNeverFewerThanTheBase) {
  EXPECT_THAT(StepsOfRounds(Halving(1, 0.2)), ElementsAre(4, 16, 64, 256));
  EXPECT_THAT(StepsOfRounds(Halving(20, 0.2)), ElementsAre(20, 20, 64, 256));
  EXPECT_THAT(StepsOfRounds(Halving(300, 0.2)), ElementsAre(300, 300, 300, 300));
  EXPECT_THAT(StepsOfRounds(Halving(1, 0.125)), ElementsAre(1, 6, 25, 100));
}

// In doubles 0.3/0.1 is less than 3.
TEST(QuadraticSteps, AreNotOneFewerForARoundingError) {
  ASSERT_LT(0.3 / 0.1, 3);
  EXPECT_THAT(StepsOfRounds(Halving(1, 0.3, 1)), ElementsAre(9));
  EXPECT_THAT(StepsOfRounds(Halving(1, 0.2999999, 1)), ElementsAre(8));
}

TEST(QuadraticSteps, AreTheBaseInWarmUp) {
  RunPlan run = Halving(2, 0.2, 5);
  run.local.lr_schedule.warmup_rounds = 3;  // at η/4, η/2 and 3η/4
  EXPECT_THAT(StepsOfRounds(run), ElementsAre(2, 2, 2, 4, 16));
}

TEST(QuadraticSteps, AreBoundedHoweverSmallTheRate) {
  const LocalConfig local = Halving(3, 0.2).local;
  EXPECT_EQ(QuadraticSteps(local, 0.2e-3, Round(9)), 1'000'000u);
  EXPECT_EQ(QuadraticSteps(local, 0.2001e-3, Round(9)), 999'000u);
  for (const double rate : {0.19e-3, 1e-12, 1e-300, 5e-324})
    EXPECT_EQ(QuadraticSteps(local, rate, Round(9)), kMostQuadraticSteps) << rate;
  EXPECT_EQ(QuadraticSteps(Halving(2'000'000, 0.2).local, 1e-9, Round(9)), 2'000'000u);
}

// Where nothing is learnt, no steps are wasted.
TEST(QuadraticSteps, AreTheBaseWhereTheRateIsZero) {
  RunPlan run = Halving(3, 0.2, 4);
  run.local.lr_schedule = {.kind = "cosine", .rounds = 2};  // factors 1, ½, 0, 0
  EXPECT_THAT(StepsOfRounds(run), ElementsAre(4, 16, 3, 3));
  EXPECT_EQ(MostLocal(run).steps, 16u);
}

TEST(QuadraticSteps, AreThoseOfWhichAStragglerDoesAPart) {
  const RunPlan run = Halving(2, 0.2);
  const CohortConfig slow{.seed = 3, .straggler_fraction = 1};
  const LocalConfig round = RoundLocal(run, Round(2));  // 16 steps
  std::set<uint64_t> steps;
  for (uint32_t id = 0; id < 500; ++id)
    steps.insert(StepsOf(WorkOf(slow, round, Round(2), ClientId(id), 10), 10));
  EXPECT_EQ(steps.size(), 15u);
  EXPECT_EQ(*steps.begin(), 1u);
  EXPECT_EQ(*steps.rbegin(), 15u);
}

TEST(MostLocal, IsOfTheLastRoundOrOfTheFirstBehindTheWarmUp) {
  EXPECT_EQ(MostLocal(Halving(1, 0.2)).steps, 256u);
  RunPlan run = Halving(1, 0.2);
  run.local.lr_schedule.gamma = 2;  // the rate grows
  EXPECT_EQ(MostLocal(run).steps, 4u);
  run.local.lr_schedule.warmup_rounds = 2;
  EXPECT_EQ(MostLocal(run).steps, 4u);
  run.local.lr_schedule.warmup_rounds = 9;  // warm-up alone
  EXPECT_EQ(MostLocal(run).steps, 1u);
  run.rounds = 0;
  EXPECT_EQ(MostLocal(run).steps, 1u);
  EXPECT_EQ(MostLocal(Halving(5, 0)).steps, 5u);
  EXPECT_EQ(MostLocal(Halving(0, 0)).epochs, 1u);
}

}  // namespace
}  // namespace macaw::training
