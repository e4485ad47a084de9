// The table of waits in server/README.md, in virtual time: leases, left out clients and owners.
#include "tests/server/waits_driver.h"

namespace macaw::server {
namespace {

// ---- leases

TEST_F(Waits, ALeaseEndsWhateverProgressItsNodeReportsAndOthersGetTheClients) {
  StartShared();
  const fleet::LeaseReply held = Ask("a");
  ASSERT_TRUE(held.training.has_value());
  const size_t clients = held.training->assignments.size();
  Serve({"b"});
  const double limit = kLimit * static_cast<double>(1 + clients);  // nothing is known of its speed
  Pass(limit - kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Pass(2 * kLease, {"a", "b"});
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  EXPECT_THAT(All<log::Requeued>()[0].attempts, SizeIs(clients));
  EXPECT_EQ(All<log::Requeued>()[0].why, "lease ran out");
  EXPECT_FALSE(Ask("a", 1).training.has_value()) << "it had its turn";
  EXPECT_EQ(Commit("a", held).verdict, fleet::Verdict::kStale);
  Serve({"b"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort);
}

TEST_F(Waits, ALeaseOfANodeWhoseSpeedIsKnownEndsAfterTenLeaseTimes) {
  StartShared({.run = TestRun(2)});
  for (const char* name : {"a", "b"}) Commit(name, Ask(name));
  ASSERT_EQ(engine_->completed(), 1u) << "each client took a second";
  ASSERT_TRUE(Ask("a").training.has_value());
  Pass(kLeast - kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Pass(2 * kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1));
  Serve({"b"});
  EXPECT_TRUE(Finished());
}

// Many nodes that fetch a large model in turn (server.downloads_at_once).
TEST_F(Waits, TheTimeThatANodeWaitsForItsTurnToDownloadDoesNotCount) {
  StartShared({.run = TestRun(2)});
  for (const char* name : {"a", "b"}) Commit(name, Ask(name));
  ASSERT_TRUE(Ask("a").training.has_value());
  for (double waited = 0; waited < kLeast + 5 * kLease; waited += kLease) {
    Pass(kLease, {"a", "b"});
    engine_->NoteWaited("a", FromSeconds(kLease));
  }
  Pass(kLeast - kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Pass(2 * kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1)) << "it had its turn and does not get on";
  Serve({"b"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, ANodeThatWaitsForTurnsWithoutEndLosesItsClients) {
  StartShared({.run = TestRun(2)});
  for (const char* name : {"a", "b"}) Commit(name, Ask(name));
  ASSERT_TRUE(Ask("a").training.has_value());
  const auto wait = [&](double seconds) {
    for (double waited = 0; waited < seconds; waited += kLease) {
      Pass(kLease, {"a", "b"});
      engine_->NoteWaited("a", FromSeconds(kLease));
      engine_->NoteWaited("nobody", FromSeconds(kLease));
    }
  };
  wait(kLeast + kLimit - kLease);
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  wait(3 * kLease);
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1));
}

TEST_F(Waits, ASlowClientGetsTwiceTheTimeAtEachTurn) {
  Start();
  Join(NodeWithEverybody("a", 1), Table());
  const double limit = kLimit * (1 + kCohort);
  fleet::LeaseReply lease = Ask("a");
  Pass(limit + kLease, {"a"});
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  std::vector<fleet::LeaseReply> leases;  // the node is on trial: one client at a time
  for (uint64_t client = 0; client < kCohort; ++client)
    leases.push_back(Ask("a", static_cast<uint32_t>(client)));
  const double again = 2 * kLimit * 2 * kCohort;
  Pass(again - 2 * kLease, {"a"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1));
  Pass(4 * kLease, {"a"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(2));
}

TEST_F(Waits, ANodeThatIsSilentForALeasesTimeIsLost) {
  StartShared();
  ASSERT_TRUE(Ask("a").training.has_value());
  Pass(kLease + 2, {"b"});
  ASSERT_THAT(All<log::NodeLost>(), SizeIs(1));
  Serve({"b"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, ANodeWithManySlotsGetsAFewClientsUntilItHasShownResults) {
  RunPlan run = TestRun(1);
  run.cohort.size = kPopulation;
  Start({.run = run, .workers = 2});
  Join(NodeWithEverybody("a", 4096), Table());
  Join(NodeWithEverybody("b", 1), Table());
  uint64_t leased = 0;
  for (int call = 0; call < 10; ++call) {
    const fleet::LeaseReply lease = Ask("a", leased > 0 ? 1 : 0);
    if (lease.training.has_value()) leased += lease.training->assignments.size();
  }
  EXPECT_GT(leased, 0u);
  EXPECT_LE(leased, 32u);
  uint64_t others = 0;
  for (int call = 0; call < 10; ++call) {
    const fleet::LeaseReply lease = Ask("b", others > 0 ? 1 : 0);
    if (lease.training.has_value()) others += lease.training->assignments.size();
  }
  EXPECT_EQ(others, kPopulation - leased) << "the others are for the other node";
}

// ---- clients that a node leaves out

TEST_F(Waits, WhatOneNodeLeavesOutIsTriedElsewhere) {
  StartShared();
  for (int turn = 0; turn < 20; ++turn) {
    const fleet::LeaseReply lease = Ask("a");
    if (lease.next == fleet::Next::kWork) Commit("a", lease, /*fails=*/true);
  }
  Serve({"b"});
  Pass(2 * kLease, {"b"});  // what the open call of "a" still got comes back
  Serve({"b"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort);
  EXPECT_THAT(All<log::Requeued>().at(0).why, HasSubstr("a has left them out"));
}

TEST_F(Waits, WhatTwoNodesLeaveOutIsGivenUp) {
  StartShared();
  for (int turn = 0; turn < 40 && !engine_->ended.has_value(); ++turn) {
    const std::string name = turn % 2 == 0 ? "a" : "b";
    const fleet::LeaseReply lease = Ask(name);
    if (lease.next == fleet::Next::kWork) Commit(name, lease, /*fails=*/true);
  }
  const auto lost = All<log::RoundLost>();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].alone, "");
}

TEST_F(Waits, ANodeThatNeverAsksIsNotWaitedForAndOneNodesWordLosesRoundsWithoutEndingTheRun) {
  StartShared({.run = TestRun(3), .limits = {.lost_rounds = 2}}, "planned_stealing");
  for (int turn = 0; turn < 600 && !engine_->ended.has_value(); ++turn) {
    const fleet::LeaseReply lease = Ask("a");
    if (lease.next == fleet::Next::kWork) {
      Commit("a", lease, /*fails=*/true);
    } else {
      Pass(kLease, {"a", "b"});
    }
  }
  EXPECT_TRUE(Finished()) << engine_->error;
  const auto lost = All<log::RoundLost>();
  ASSERT_THAT(lost, SizeIs(3));
  for (const log::RoundLost& round : lost) EXPECT_EQ(round.alone, "a");
}

TEST_F(Waits, ARunWhoseTwoRoundsWereLostSaysThatTheOneBeforeWasToo) {
  StartShared({.run = TestRun(3), .limits = {.lost_rounds = 2}}, "planned_stealing");
  for (int turn = 0; turn < 600 && !engine_->ended.has_value(); ++turn) {
    bool idle = true;
    for (const char* node : {"a", "b"}) {
      const fleet::LeaseReply lease = Ask(node);
      if (lease.next != fleet::Next::kWork) continue;
      idle = false;
      Commit(node, lease, /*fails=*/true);
    }
    if (idle) Pass(kLease, {"a", "b"});
  }
  EXPECT_THAT(std::string(engine_->error.message()),
              testing::EndsWith(" (as in the round before)"));
}

class WaitsUnder : public Waits, public testing::WithParamInterface<std::string> {};

TEST_P(WaitsUnder, ANodeThatIsHeardAndNeverAsksHoldsNothingUp) {
  StartShared({.run = TestRun(3)}, GetParam());
  Ask("a");
  while (!engine_->ended.has_value() && now_ < TimePoint() + FromSeconds(1000)) {
    if (const auto got = engine_->leases.find(tickets_);
        got == engine_->leases.end()) {  // its call for work is still open
      Pass(1, {"a", "b"});
    } else {
      if (got->second.next == fleet::Next::kWork) Commit("a", got->second);
      Ask("a");
    }
  }
  EXPECT_TRUE(Finished());
  EXPECT_LT(now_, TimePoint() + FromSeconds(3 * 75));
}

std::vector<std::string> Policies() {
  std::vector<std::string> names;
  for (const auto& [name, _] : scheduler::SchedulingPolicies()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Policies, WaitsUnder, testing::ValuesIn(Policies()),
                         [](const auto& policy) { return policy.param; });

TEST_F(Waits, WhatWaitsForNodesThatAllDeclineIsGivenUpWhenTheLastOtherLeaves) {
  StartShared();
  EXPECT_EQ(Ask("a", 0, "not now").next, fleet::Next::kWait);
  EXPECT_THAT(GivenUp(), IsEmpty()) << "the other works";
  Leave("b");
  ASSERT_THAT(GivenUp(), SizeIs(kCohort));
  EXPECT_EQ(GivenUp()[0].reason, LeftOutReason::kDeclined);
}

// ---- owners

TEST_F(Waits, AnOwnerIsGivenUpByAnOperatorUntilItComesBack) {
  StartOwned({.run = TestRun(4)});
  EXPECT_EQ(Operate(admin::Action::kGiveUp, "phone").status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "it is there";
  EXPECT_EQ(Operate(admin::Action::kGiveUp, "nobody").status().code(), absl::StatusCode::kNotFound);
  Leave("phone");
  Serve({"lab", "tester"});
  Pass(1000, {"lab", "tester"});
  EXPECT_EQ(engine_->completed(), 0u) << "rounds wait for all their clients";
  ASSERT_TRUE(Operate(admin::Action::kGiveUp, "phone").ok());
  EXPECT_EQ(engine_->completed(), 1u);
  ASSERT_FALSE(GivenUp().empty());
  EXPECT_EQ(GivenUp()[0].reason, LeftOutReason::kGone);
  EXPECT_THAT(GivenUp()[0].message, HasSubstr("ada"));
  const size_t before = GivenUp().size();
  Commit("lab", Ask("lab"));
  ASSERT_EQ(engine_->completed(), 2u);
  EXPECT_GT(GivenUp().size(), before) << "in each round";
  const size_t then = GivenUp().size();
  JoinOwner("phone");
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(GivenUp().size(), then);
}

TEST_F(Waits, ADrainedRunEndsWhenItsOpenRoundWaitsForNodesThatAreGone) {
  StartOwned({.run = TestRun(2)});
  Leave("phone");
  Serve({"lab", "tester"});
  ASSERT_TRUE(Operate(admin::Action::kDrain).ok());
  EXPECT_FALSE(engine_->ended.has_value()) << "it may come back";
  Pass(kLease + 2, {"lab", "tester"});
  EXPECT_EQ(engine_->ended, RunEnd::kInterrupted);
}

TEST_F(Waits, AResumedRunBeginsWithoutAnOwnerThatIsGivenUp) {
  Start({.run = TestRun(2), .workers = 3, .completed = 1});
  durable_.completed = 1;
  Restored owners;
  for (const char* name : {"phone", "lab"}) owners.members.push_back(Owner(name));
  engine_->Resume(std::move(owners), now_);
  JoinOwner("lab");
  JoinTester();
  Pass(1000, {"lab", "tester"});
  EXPECT_THAT(All<log::RoundOpened>(), IsEmpty());
  ASSERT_TRUE(Operate(admin::Action::kGiveUp, "phone").ok());
  EXPECT_THAT(All<log::RoundOpened>(), SizeIs(1));
  Serve({"lab", "tester"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, AResumedRunBeginsAtItsDeadlineWithEnoughOfItsClients) {
  for (const double quorum : {0.5, 0.9}) {
    records_.clear();
    durable_ = {};
    durable_.completed = 1;
    Start({.run = TestRun(2),
           .workers = 3,
           .completed = 1,
           .round = {.deadline = 60, .quorum = quorum}});
    Restored owners;
    for (const char* name : {"phone", "lab"}) owners.members.push_back(Owner(name));
    engine_->Resume(std::move(owners), now_);
    JoinOwner("lab");
    JoinTester();
    Pass(50, {"lab", "tester"});
    EXPECT_THAT(All<log::RoundOpened>(), IsEmpty());
    Pass(20, {"lab", "tester"});
    EXPECT_THAT(All<log::RoundOpened>(), SizeIs(quorum < 0.6 ? 1 : 0));
  }
}

}  // namespace
}  // namespace macaw::server
