#include "server/engine/round_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/engine/troubles.h"

namespace macaw::server {
namespace {

using testing::HasSubstr;
using Kind = Trouble::Kind;

Remedy After(Kind kind, uint32_t times, uint32_t nodes, uint32_t candidates, bool owned = false) {
  return CompleteRounds({.deaths = 3})
      .OnTrouble({.kind = kind,
                  .client = ClientId(7),
                  .times = times,
                  .nodes = nodes,
                  .candidates = candidates,
                  .owned = owned});
}

TEST(RoundPolicy, APhaseClosesWhenNobodyIsWaitedFor) {
  const CompleteRounds policy;
  EXPECT_EQ(policy.Decide({.cohort = 3, .waiting = 1, .counted = 2}), Course::kWait);
  EXPECT_EQ(policy.Decide({.cohort = 3, .leased = 1, .counted = 2}), Course::kWait);
  EXPECT_EQ(policy.Decide({.cohort = 3, .counted = 2, .given_up = 1}), Course::kClose);
}

TEST(RoundPolicy, WithoutKeysOfRoundOnlyTheSettledPhaseCloses) {
  const TimelyRounds timely({}, {});
  const CompleteRounds complete;
  for (uint64_t waiting = 0; waiting < 3; ++waiting) {
    for (uint64_t counted = 0; counted < 3; ++counted) {
      const Standing standing{.drawn = 4, .cohort = 4, .waiting = waiting, .counted = counted};
      EXPECT_EQ(timely.Decide(standing), complete.Decide(standing));
    }
  }
}

TEST(RoundPolicy, TheQuorumIsAShareOfTheRoundsCohortAndAtLeastOneClient) {
  EXPECT_EQ((RoundRules{.quorum = 0.7}.Needed(10)), 7u);
  EXPECT_EQ((RoundRules{.quorum = 0.71}.Needed(10)), 8u);
  EXPECT_EQ((RoundRules{.quorum = 1}.Needed(10)), 10u);
  EXPECT_EQ((RoundRules{.quorum = 0}.Needed(10)), 1u);
  EXPECT_EQ((RoundRules{.quorum = 0}.Needed(0)), 0u);
}

TEST(RoundPolicy, RoundsThatDoNotWaitAreRefusedWhereThePlannedCohortDivides) {
  const auto refusal = [](const CohortConfig& cohort, const RoundRules& rules) {
    return std::string(CheckRounds(cohort, rules).message());
  };
  const CohortConfig poisson{.sampling = "poisson"};
  EXPECT_THAT(refusal(poisson, {.enough = 3}), testing::HasSubstr("round.enough"));
  EXPECT_THAT(refusal(poisson, {.deadline = 9, .quorum = 0.5}), testing::HasSubstr("round.quorum"));
  EXPECT_EQ(refusal(poisson, {.deadline = 9, .below_quorum = RoundRules::BelowQuorum::kDrop}), "");
  EXPECT_EQ(refusal({}, {.deadline = 9, .quorum = 0.5, .enough = 3}), "");
  EXPECT_THAT(refusal({.straggler_fraction = 1, .straggler_policy = "drop"}, {}),
              testing::HasSubstr("straggler_fraction = 1"));
}

TEST(CheckRounds, RefusesPoissonWhereKeysSayWhoMayBeDrawn) {
  const auto refusal = [](const CohortConfig& cohort) {
    return std::string(CheckRounds(cohort, {}).message());
  };
  EXPECT_THAT(refusal({.sampling = "poisson", .eligible = {"*"}}), HasSubstr("cohort.eligible"));
  EXPECT_THAT(refusal({.sampling = "poisson", .min_rows = 3}), HasSubstr("cohort.min_rows"));
  EXPECT_EQ(refusal({.sampling = "poisson"}), "");
  for (const char* sampling : {"uniform", "sweep"})
    EXPECT_EQ(refusal({.sampling = sampling, .eligible = {"*"}, .min_rows = 3}), "") << sampling;
}

TEST(CheckRounds, RefusesMoreThanARoundCanCount) {
  const auto refusal = [](const CohortConfig& cohort, uint64_t enough) {
    return std::string(CheckRounds(cohort, {.enough = enough}).message());
  };
  EXPECT_EQ(refusal({.size = 4}, 4), "");
  EXPECT_THAT(refusal({.size = 4}, 5), HasSubstr("round.enough = 5"));
  EXPECT_THAT(refusal({.size = 4, .over_selection = 2}, 5), HasSubstr("cohort.size"));
  EXPECT_EQ(refusal({}, 5), "") << "cohort.size is not known yet";
}

TEST(RoundPolicy, WhatHappensAtTheDeadlineDependsOnTheQuorum) {
  const RoundRules rules{.deadline = 9, .quorum = 0.5};
  Standing standing{.drawn = 4, .cohort = 4, .leased = 3, .counted = 1};
  const TimelyRounds extends({}, rules);
  RoundRules dropping = rules;
  dropping.below_quorum = RoundRules::BelowQuorum::kDrop;
  const TimelyRounds drops({}, dropping);
  EXPECT_EQ(drops.Decide(standing), Course::kWait);
  standing.overdue = true;
  EXPECT_EQ(extends.Decide(standing), Course::kWait);
  EXPECT_EQ(drops.Decide(standing), Course::kDropRound);
  standing.counted = 2;
  EXPECT_EQ(extends.Decide(standing), Course::kCloseAtDeadline);
  EXPECT_EQ(drops.Decide(standing), Course::kCloseAtDeadline);
}

TEST(RoundPolicy, OneNodeEndsNoRunWhileAnotherCouldDoItsWork) {
  for (const Kind kind : {Kind::kDied, Kind::kStateUnreadable}) {
    for (uint32_t times = 1; times < 100; ++times)
      EXPECT_NE(After(kind, times, /*nodes=*/1, /*candidates=*/2), Remedy::kEndRun) << times;
  }
}

TEST(RoundPolicy, WhatSeveralNodesOrTheOnlyOneReportEndsTheRun) {
  EXPECT_EQ(After(Kind::kDied, 2, 2, 2), Remedy::kTryAgain);
  EXPECT_EQ(After(Kind::kDied, 3, 2, 2), Remedy::kEndRun);
  EXPECT_EQ(After(Kind::kDied, 3, 1, 1), Remedy::kEndRun);
  EXPECT_EQ(After(Kind::kDied, 3, 1, 2), Remedy::kGiveUpClient);
  EXPECT_EQ(After(Kind::kStateUnreadable, 1, 1, 1), Remedy::kEndRun);
  EXPECT_EQ(After(Kind::kStateUnreadable, 1, 1, 2), Remedy::kTryAgain);
  EXPECT_EQ(After(Kind::kStateUnreadable, 2, 2, 5), Remedy::kEndRun);
}

TEST(RoundPolicy, AnOwnersTroubleConcernsItsOwnClientsOnly) {
  EXPECT_EQ(After(Kind::kStateUnreadable, 1, 1, 1, /*owned=*/true), Remedy::kLoseState);
  EXPECT_EQ(After(Kind::kStateUnreadable, 1, 1, 2, /*owned=*/true), Remedy::kTryAgain);
  EXPECT_EQ(After(Kind::kStateUnreadable, 2, 1, 2, /*owned=*/true), Remedy::kLoseState)
      << "its other nodes do not ask for the client";
  EXPECT_EQ(After(Kind::kDied, 3, 1, 1, /*owned=*/true), Remedy::kGiveUpClient);
}

TEST(Troubles, ADeathCountsOnceAndOnlyOfALeaseThatWasLostWithThatNode) {
  Troubles troubles;
  const Attempt a{ClientId(1), {1, 10}}, b{ClientId(2), {1, 11}};
  const std::vector<Attempt> lost = {a};
  troubles.LostWith("anna", lost);
  const std::vector<Attempt> claimed = {a, b, {ClientId(2), {1, 10}}};
  EXPECT_TRUE(troubles.Died("bert", claimed).empty());
  const std::vector<Trouble> found = troubles.Died("anna", claimed);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].client, ClientId(1));
  EXPECT_TRUE(troubles.Died("anna", claimed).empty());
}

TEST(DecideStep, ClosesWithItsArrivalsAndNotBeforeThoseThatComeAreSettled) {
  const RoundRules rules{.deadline = 5, .quorum = 0.5};
  const auto decide = [&](Standing standing) { return DecideStep(rules, 4, standing); };
  EXPECT_EQ(decide({.leased = 9, .counted = 3}), Course::kWait);
  EXPECT_EQ(decide({.leased = 9, .counted = 4}), Course::kClose);
  EXPECT_EQ(decide({.leased = 9, .counted = 4, .arriving = 1}), Course::kWait);
  EXPECT_EQ(decide({.counted = 1, .given_up = 8}), Course::kClose) << "nobody trains";
  EXPECT_EQ(decide({.leased = 9, .counted = 1, .overdue = true}), Course::kWait);
  EXPECT_EQ(decide({.leased = 9, .counted = 2, .overdue = true}), Course::kClose);
  EXPECT_EQ(decide({.leased = 9, .counted = 2, .arriving = 1, .overdue = true}),
            Course::kCloseAtDeadline);
}

TEST(CheckLiveSteps, NamesTheKeyThatAFleetCannotHave) {
  RunPlan run;
  run.asynchronous.mode = "buffered";
  const auto why = [&](const RunPlan& plan, const RoundRules& rules = {}, bool stateful = false) {
    return std::string(CheckLiveSteps(plan, rules, stateful).message());
  };
  EXPECT_EQ(why(run), "");
  EXPECT_EQ(why(run, {.deadline = 3, .quorum = 0.5, .present_within = 9}), "");
  EXPECT_THAT(why(run, {.enough = 3}), HasSubstr("round.enough"));
  EXPECT_THAT(why(run, {.below_quorum = RoundRules::BelowQuorum::kDrop}),
              HasSubstr("round.below_quorum"));
  EXPECT_THAT(why(run, {}, true), HasSubstr("feedback"));
  run.asynchronous.refill = 2;
  EXPECT_THAT(why(run), HasSubstr("round.refill"));
  run.asynchronous = {.mode = "mixed"};
  EXPECT_THAT(why(run), HasSubstr("buffered"));
  run.devices.family = "phones";
  EXPECT_EQ(why(run, {.enough = 3}), "") << "a simulation";
}

}  // namespace
}  // namespace macaw::server
