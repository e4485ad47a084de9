// The model test of the engine. Under every schedule, each round must count exactly the expected
// clients, once each.
#include "tests/server/engine_world.h"

namespace macaw::server {
namespace {

TEST(EngineModel, CountsEveryClientOnceOnAQuietDay) {
  World world(1, 4, 1, 3);
  world.Run(0);
  world.ExpectEverythingCountedOnce();
  world.ExpectEveryTurnInTheStates();
  EXPECT_EQ(world.durable().epoch, 1u);
}

TEST(EngineModel, CountsEveryClientOnceWhateverHappens) {
  uint32_t restarts = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 1 + seed % 5, 1, 1 + static_cast<int>(seed % 4));
    world.Run(5 + 10 * (seed % 6));
    world.ExpectEverythingCountedOnce();
    world.ExpectEveryTurnInTheStates();
    restarts += world.durable().epoch - 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(restarts, 30u) << "the schedules should have restarted the server now and then";
}

TEST(EngineModel, ASecondPhaseTrainsTheSameClientsLessThoseLeftOut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    World world(1000 + seed, 3, 2, 2);
    world.Run(10);
    world.ExpectEverythingCountedOnce();
    world.ExpectEveryTurnInTheStates();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EngineModel, ReplacedStatesGoAndTheDigestIsTheSameForAnyScheduleOfMisfortunes) {
  World quiet(1, 12, 1, 2);
  quiet.Run(0);
  quiet.ExpectEveryTurnInTheStates();
  EXPECT_GT(quiet.deleted(), 20u) << "of " << 12 * kCohort << " versions for 40 clients";
  for (uint64_t seed = 0; seed < 10; ++seed) {
    World troubled(seed, 12, 1, 3);
    troubled.Run(30);
    EXPECT_EQ(troubled.state_digest(), quiet.state_digest()) << seed;
  }
}

TEST(EngineModel, OwnersGiveWhatOneWorkerGivesWhateverHappens) {
  int without_digest = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    World quiet(seed, 3, 1, 1);
    quiet.Run(0);
    World owned(seed, 3, 1, 1 + static_cast<int>(seed % 8), Division::kOwned);
    owned.Run(5 * (seed % 4));
    owned.ExpectEverythingCountedOnce();
    owned.ExpectEveryTurnInTheStates();
    if (owned.state_digest().IsZero()) {  // an owner was away for too long at the end
      ++without_digest;
    } else {
      EXPECT_EQ(owned.state_digest(), quiet.state_digest());
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_LT(without_digest, 30);
}

RoundRules RulesOf(uint64_t seed) {
  RoundRules rules{.deadline = 1.0 + static_cast<double>(seed % 4),
                   .quorum = 0.25 * static_cast<double>(seed % 5)};
  if (seed % 3 == 0) rules.enough = 3 + seed % 8;
  if (seed % 2 == 0) rules.below_quorum = RoundRules::BelowQuorum::kDrop;
  if (seed % 7 < 3) rules.present_within = 2;
  return rules;
}

TEST(EngineModel, RoundsThatEndWithoutEverybodyCountWhatTheirRecordsSayAndAreRepeatedFromThem) {
  uint64_t missed = 0, dropped = 0, absent = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const uint32_t rounds = 2 + seed % 4;
    const int phases = seed % 5 == 4 ? 2 : 1;
    const Division division = seed % 2 == 0 ? Division::kShared : Division::kOwned;
    World world(seed, rounds, phases, 1 + static_cast<int>(seed % 6), division,
                {.rules = RulesOf(seed / 2)});
    world.Run(10 * (seed % 7));
    world.ExpectRoundsEndedByTheRules();
    ASSERT_EQ(world.durable().counted.size(), rounds);
    for (const auto& [place, decision] : world.history().decisions()) {
      missed += decision.given_up.size();
      dropped += decision.dropped ? 1 : 0;
      absent += decision.present.empty() ? 0 : 1;
    }
    // The names of the clients must be the same, so that they have the same numbers.
    World again(seed + 1, rounds, phases, division == Division::kShared ? 2 : 1, division,
                {.decisions = world.history().decisions()});
    again.Run(0);
    EXPECT_EQ(again.durable().counted, world.durable().counted);
    EXPECT_EQ(again.state_digest(), world.state_digest());
    EXPECT_EQ(log::FirstDifference(world.history(), again.history()), std::nullopt);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(missed, 500u) << "the schedules should have missed clients";
  EXPECT_GT(dropped, 10u);
  EXPECT_GT(absent, 5u);
}

// Devices leave for ever, lie about their progress, fail their clients and hold evaluations; owners
// lose their states. With deadlines or an operator every run ends, and its records tell the rest.
TEST(EngineModel, EveryRunEndsWhateverItsWorkersDoAndItsLogRepeatsIt) {
  uint64_t given_up = 0, lost_states = 0, cut = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const uint32_t rounds = 2 + seed % 4;
    const int phases = seed % 5 == 4 ? 2 : 1;
    const Division division = seed % 3 == 0 ? Division::kShared : Division::kOwned;
    Ends ends{.vices = true, .volatile_states = seed % 2 == 0};
    if (seed % 4 == 1) ends.rules = {.deadline = 3, .quorum = 0};
    World world(seed, rounds, phases, 2 + static_cast<int>(seed % 6), division, ends);
    world.Run(5 * (seed % 6));
    ASSERT_EQ(world.durable().counted.size(), rounds);
    world.ExpectAStateDigestUnlessItWasGivenUp();
    for (const auto& [place, decision] : world.history().decisions()) {
      given_up += decision.given_up.size();
      lost_states += decision.lost_states.before.size() + decision.lost_states.after.size();
      cut += decision.evaluation.size();
    }
    restarts += world.durable().epoch - 1;
    World again(seed + 1, rounds, phases, division == Division::kShared ? 2 : 1, division,
                {.decisions = world.history().decisions()});
    again.Run(0);
    EXPECT_EQ(again.durable().counted, world.durable().counted);
    EXPECT_EQ(again.state_digest(), world.state_digest());
    EXPECT_EQ(log::FirstDifference(world.history(), again.history()), std::nullopt);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(given_up, 100u) << "the schedules should have given up clients";
  EXPECT_GT(lost_states, 20u);
  EXPECT_GT(cut, 20u);
  EXPECT_GT(restarts, 5u);
}

// Owners lose the states that they keep in memory, in any phase and between rounds, and servers are
// started again. What clients have added is the sum of what they keep, after each round.
TEST(EngineModel, AnAlgorithmThatSumsStatesBeginsAnewAfterALossAndSoDoesTheRunThatIsRepeated) {
  uint64_t begun_anew = 0, kept = 0, restarts = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const uint32_t rounds = 3 + seed % 4;
    const int phases = seed % 3 == 2 ? 2 : 1;
    Ends ends{.vices = seed % 2 == 0, .volatile_states = true, .sums_states = true};
    if (seed % 4 > 1)
      ends.rules = {.deadline = 3, .quorum = 0.5, .below_quorum = RoundRules::BelowQuorum::kDrop};
    World world(seed, rounds, phases, 3 + static_cast<int>(seed % 3), Division::kOwned, ends);
    world.Run(5 * (seed % 5));
    ASSERT_EQ(world.durable().counted.size(), rounds);
    for (const auto& [place, decision] : world.history().decisions())
      begun_anew += decision.lost_states.all ? 1 : 0;
    kept += world.durable().sum > 0 ? 1 : 0;
    restarts += world.durable().epoch - 1;
    // Its decisions say when it begins anew. It also forgets what an earlier server had said to be
    // lost of clients that never came again.
    World again(seed + 1, rounds, phases, 1, Division::kOwned,
                {.decisions = world.history().decisions()});
    again.Run(0);
    EXPECT_EQ(again.durable().counted, world.durable().counted);
    EXPECT_EQ(again.durable().sum, world.durable().sum);
    EXPECT_EQ(again.state_digest(), world.state_digest());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(begun_anew, 20u) << "the schedules should have lost states";
  EXPECT_GT(kept, 20u);
  EXPECT_GT(restarts, 5u);
}

}  // namespace
}  // namespace macaw::server
