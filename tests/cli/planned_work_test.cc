// The work that a plan gives its clients, and the arithmetic of its time. All figures are by hand.
#include "cli/simulate/planned_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace macaw::cli {
namespace {

// Three clients with 4, 10 and 25 rows, all of them in each round.
RunPlan Everybody() {
  RunPlan run;
  run.rounds = 6;
  run.clients = 3;
  run.cohort.size = 3;
  run.local.epochs = 2;
  run.local.batch_size = 10;
  return run;
}

TurnPlan Made(const RunPlan& run, std::vector<uint32_t> rows = {4, 10, 25}) {
  absl::StatusOr<TurnPlan> plan = TurnPlan::Make(run, std::move(rows));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(TurnPlan, HasTheStepsAndRowsOfEachClient) {
  const std::vector<PlannedTurn> turns = Made(Everybody()).Of(Round(1));
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].steps, 2u);  // 2 epochs of 1, 1 and 3 batches
  EXPECT_EQ(turns[1].steps, 2u);
  EXPECT_EQ(turns[2].steps, 6u);
  EXPECT_EQ(turns[0].passed, 8);
  EXPECT_EQ(turns[2].passed, 50);
  EXPECT_EQ(turns[2].client, ClientId(2));
}

TEST(TurnPlan, DrawsUniformlyWhereCohortsFollowLosses) {
  RunPlan run = Everybody();
  run.cohort.size = 2;
  const auto clients = [&](const char* sampling) {
    run.cohort.sampling = sampling;
    std::vector<ClientId> drawn;
    for (const PlannedTurn& turn : Made(run).Of(Round(4))) drawn.push_back(turn.client);
    return drawn;
  };
  for (const char* sampling : {"oort", "power-of-choice", "ucb"})
    EXPECT_EQ(clients(sampling), clients("uniform"));
}

TEST(TurnPlan, CountsStepsAndRowsAsTheKeysOfLocalSay) {
  RunPlan run = Everybody();
  run.local.drop_last = true;
  EXPECT_EQ(Made(run, {10, 10, 25}).Of(Round(1))[2].steps, 4u);
  EXPECT_EQ(Made(run, {10, 10, 25}).Of(Round(1))[2].passed, 40);
  run.local = {.steps = 7, .batch_size = 10};
  EXPECT_EQ(Made(run).Of(Round(1))[0].steps, 7u);
  EXPECT_EQ(Made(run).Of(Round(1))[0].passed, 28);  // a batch has no more than its 4 rows
  EXPECT_EQ(Made(run).Of(Round(1))[2].passed, 60);  // of 10, 10 and 5
  run.local = {.epochs = 3, .batch_size = 0};
  EXPECT_EQ(Made(run).Of(Round(1))[2].steps, 3u);
  EXPECT_EQ(Made(run).Of(Round(1))[2].passed, 75);
}

TEST(TurnPlan, CountsRowsAsTheRuleSays) {
  const auto plan = TurnPlan::Make(Everybody(), {4, 10, 25}, {}, {},
                                   [](const LocalTurn& turn) { return 7.0 * turn.rows; });
  EXPECT_EQ(plan->Of(Round(1))[2].passed, 175);
  EXPECT_EQ(plan->Of(Round(1))[2].steps, 6u);
}

TEST(TurnPlan, HasTheStepsOfTheRound) {
  RunPlan run = Everybody();
  run.local = {.steps = 3, .qsr = 0.2, .lr = 0.1};
  run.local.lr_schedule = {.kind = "exponential", .gamma = 0.5};
  EXPECT_EQ(Made(run).Of(Round(1))[2].steps, 4u);
  EXPECT_EQ(Made(run).Of(Round(3))[2].steps, 64u);
  EXPECT_EQ(Made(run).Of(Round(3))[2].passed, 535);
}

TEST(TurnPlan, LeavesOutWhoCannotBeDrawnAndStragglersThatAreDropped) {
  RunPlan run = Everybody();
  run.cohort.size = 2;
  for (uint32_t round = 1; round <= 20; ++round) {
    for (const PlannedTurn& turn : Made(run, {4, 0, 25}).Of(Round(round)))
      EXPECT_NE(turn.client, ClientId(1));
  }
  run.cohort.straggler_fraction = 1;
  run.cohort.straggler_policy = "drop";
  EXPECT_TRUE(Made(run).Of(Round(1)).empty());
}

TEST(WorkOfRun, AddsAllTurnsUp) {
  const PlannedWork work = WorkOfRun(Made(Everybody()), 6);
  EXPECT_TRUE(work.exact());
  EXPECT_EQ(work.turns, 18);
  EXPECT_EQ(work.steps, 60);  // 6 · (2 + 2 + 6)
  EXPECT_EQ(work.least_steps, 2u);
  EXPECT_EQ(work.most_steps, 6u);
  EXPECT_EQ(work.clients, 3u);
  EXPECT_EQ(work.examples.size(), 6u);
}

TEST(WorkOfRun, LetsSomeRoundsStandForMany) {
  const PlannedWork work = WorkOfRun(Made(Everybody()), 1000, std::nullopt, {.turns = 300});
  EXPECT_EQ(work.drawn, 100u);
  EXPECT_FALSE(work.exact());
  EXPECT_EQ(work.turns, 3000);
  EXPECT_EQ(work.steps, 10000);
  EXPECT_FALSE(work.clients.has_value());
  EXPECT_EQ(work.examples.size(), 40u);
  EXPECT_LE(work.examples.back().round.value, 1000u);
}

TEST(WorkOfRun, IsNothingWithoutRounds) {
  const PlannedWork work = WorkOfRun(Made(Everybody()), 0);
  EXPECT_EQ(work.turns, 0);
  EXPECT_EQ(work.clients, 0u);
}

// A turn takes a second for each row that passes and for each byte; client k takes k seconds more.
class CountingDevices final : public virtual_time::Devices {
 public:
  virtual_time::Device Of(ClientId) const override { return {}; }
  virtual_time::TurnTime TurnOf(Round, ClientId client, double passed,
                                const virtual_time::Traffic& traffic) const override {
    return {.download = traffic.down,
            .work = passed + static_cast<double>(client.value),
            .upload = traffic.up};
  }
};

// Turns of 8, 21 and 52 seconds, and twice these bytes.
TurnPlan Timed(RunPlan run, double bytes = 0) {
  run.devices.family = "lognormal";
  absl::StatusOr<TurnPlan> plan = TurnPlan::Make(
      run, {4, 10, 25}, {.devices = std::make_shared<CountingDevices>(), .presence = nullptr},
      {.down = bytes, .up = bytes});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(WorkOfRun, SumsTheSlowestTurnsOfItsRounds) {
  const PlannedWork work = WorkOfRun(Timed(Everybody(), 100), 6);
  EXPECT_EQ(work.virtual_seconds, 6 * (200 + 52));
  EXPECT_EQ(work.turns, 18);
  EXPECT_FALSE(WorkOfRun(Made(Everybody()), 6).virtual_seconds.has_value());
}

TEST(WorkOfRun, TakesTheTrafficAfterTheFirstRound) {
  const virtual_time::Traffic traffic = {.down = 1, .up = 2};
  EXPECT_EQ(WorkOfRun(Timed(Everybody(), 100), 6, traffic).virtual_seconds, 6 * 52 + 200 + 5 * 3);
}

TEST(WorkOfRun, CountsWhoIsThereAtTheDeadline) {
  RunPlan run = Everybody();
  run.devices.deadline = 30;
  run.devices.quorum = 0.5;
  const PlannedWork work = WorkOfRun(Timed(run), 6);
  EXPECT_EQ(work.virtual_seconds, 6 * 30);
  EXPECT_EQ(work.turns, 12);
  EXPECT_EQ(work.most_steps, 2u) << "of those in time";
}

TEST(WorkOfRun, LetsSomeTimedRoundsStandForMany) {
  const PlannedWork work = WorkOfRun(Timed(Everybody()), 1000, std::nullopt, {.timed_turns = 300});
  EXPECT_EQ(work.drawn, 100u);
  EXPECT_EQ(work.virtual_seconds, 1000 * 52);
  EXPECT_NEAR(work.examples.back().clock.now, (work.examples.back().round.value - 1) * 52, 1e-6);
}

// With one client a step and three at a time, the clients arrive whenever their turns end:
//   at 8, 16, 21, 24, 32, 40, 42, 48, 52 s and so on, 1/8 + 1/21 + 1/52 of them a second
TEST(WorkOfRun, OfRoundsThatDoNotWaitIsOfTheFirstOnes) {
  RunPlan run = Everybody();
  run.cohort.size = 1;
  run.asynchronous = {.mode = "buffered", .concurrency = 3};
  EXPECT_EQ(WorkOfRun(Timed(run), 9).virtual_seconds, 52);
  const PlannedWork some = WorkOfRun(Timed(run), 100'000, std::nullopt, {.timed_turns = 5000});
  EXPECT_EQ(some.drawn, 5000u);
  EXPECT_EQ(some.turns, 100'000);
  const double rate = 1.0 / 8 + 1.0 / 21 + 1.0 / 52;
  EXPECT_NEAR(*some.virtual_seconds, 100'000 / rate, 1500);
}

TEST(FitTurns, FindsAFixedPartAndAPartOfRows) {
  const std::vector<TimedTurn> turns = {{10, 0.5}, {20, 0.7}, {40, 1.1}};
  const TurnCost cost = FitTurns(turns);
  EXPECT_NEAR(cost.fixed, 0.3, 1e-12);
  EXPECT_NEAR(cost.row, 0.02, 1e-12);
  EXPECT_NEAR(cost.Of(100), 2.3, 1e-12);
}

TEST(FitTurns, KeepsBothPartsAboveZeroAndTheMean) {
  const std::vector<TimedTurn> steep = {{10, 0.1}, {20, 0.5}};  // the line would begin at −0.3
  EXPECT_EQ(FitTurns(steep).fixed, 0);
  EXPECT_NEAR(FitTurns(steep).row, 0.02, 1e-12);  // 0.3 s for 15 rows
  const std::vector<TimedTurn> falling = {{10, 0.5}, {20, 0.3}};
  EXPECT_EQ(FitTurns(falling).row, 0);
  EXPECT_NEAR(FitTurns(falling).fixed, 0.4, 1e-12);
}

TEST(FitTurns, TakesTurnsOfOneSizeInProportion) {
  const std::vector<TimedTurn> turns = {{10, 0.4}, {10, 0.6}};
  EXPECT_EQ(FitTurns(turns).fixed, 0);
  EXPECT_NEAR(FitTurns(turns).row, 0.05, 1e-12);
  EXPECT_EQ(FitTurns({}).Of(10), 0);
}

TEST(LongestFirst, FillsTheSlotThatIsFreeFirst) {
  EXPECT_EQ(LongestFirst({1, 2, 3, 4}, 2), 5);  // 4 + 1 and 3 + 2
  EXPECT_EQ(LongestFirst({1, 1, 6}, 2), 6);     // one turn is the whole round
  EXPECT_EQ(LongestFirst({1, 2, 3}, 1), 6);
  EXPECT_EQ(LongestFirst({}, 4), 0);
}

}  // namespace
}  // namespace macaw::cli
