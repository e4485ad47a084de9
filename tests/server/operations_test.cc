// What operators ask of the engine, with one or two workers.
#include "tests/server/one_round.h"

namespace macaw::server {
namespace {

using admin::Action;
using admin::RunState;
using admin::Step;
using testing::HasSubstr;

class Operations : public OneRound {
 protected:
  explicit Operations(bool stepwise = false)
      : OneRound({.stepwise = stepwise, .stateful = true}, /*rounds=*/3) {}

  absl::StatusOr<std::string> Ask(Action action, const std::string& node = "", uint32_t round = 0) {
    auto said = engine_.Operate(
        {.action = action, .by = "ada", .reason = "a test", .node = node, .round = round},
        TimePoint{});
    engine_.RunAll(random_, TimePoint{});
    return said;
  }
  admin::RunStatus Status() {
    admin::RunStatus status;
    engine_.Describe(status, TimePoint{});
    return status;
  }
  fleet::CommitReply Commit(SessionId session, const fleet::TrainingLease& lease) {
    fleet::CommitRequest request{.session = session, .commit_id = ++commits_};
    request.part = fleet::Part{.round = lease.round, .broadcast = lease.broadcast.name};
    std::vector<ClientId> included;
    for (const fleet::Assignment& a : lease.assignments) {
      if (fixtures::IsLeftOut(lease.round, a.client)) {
        request.part->left_out.push_back({.attempt = {a.client, a.fence},
                                          .reason = fleet::LeftOutReason::kFailed,
                                          .message = "it cannot be trained"});
      } else {
        request.part->included.push_back(RecordOf(a));
        included.push_back(a.client);
      }
    }
    engine_.Hold(++ticket_, included);
    const Ticket ticket = ticket_;
    engine_.Commit(ticket, request, absl::OkStatus(), TimePoint{});
    engine_.RunAll(random_, TimePoint{});
    running_ = 0;
    return engine_.commits.contains(ticket) ? engine_.commits.at(ticket) : fleet::CommitReply{};
  }
  // Commits the round's clients, and aborts the round before their part is added.
  void AbortDuringAnAddition(SessionId session) {
    const fleet::LeaseReply lease = Lease(session);
    ASSERT_TRUE(lease.training.has_value());
    fleet::CommitRequest request{.session = session, .commit_id = ++commits_};
    request.part = PartOf(*lease.training);
    std::vector<ClientId> clients;
    for (const auto& a : lease.training->assignments) clients.push_back(a.client);
    engine_.Hold(++ticket_, clients);
    engine_.Commit(ticket_, request, absl::OkStatus(), TimePoint{});
    ASSERT_TRUE(
        engine_.Operate({.action = Action::kAbortRound, .by = "ada", .round = 1}, TimePoint{})
            .ok());
  }
  // Trains all clients of the open round, and does not evaluate.
  void TrainRound(SessionId session) {
    const uint32_t round = Status().round;
    while (engine_.completed() < round && !engine_.ended.has_value()) {
      const fleet::LeaseReply reply = Lease(session);
      ASSERT_TRUE(reply.training.has_value());
      Commit(session, *reply.training);
    }
  }
};

TEST_F(Operations, APausedRunClosesItsRoundAndOpensTheNextWhenItGoesOn) {
  const SessionId session = Join(Node());
  ASSERT_TRUE(Ask(Action::kPause).ok());
  EXPECT_EQ(Status().state, RunState::kPausing);
  TrainRound(session);
  EXPECT_EQ(engine_.completed(), 1u);
  EXPECT_EQ(Status().state, RunState::kPaused);
  EXPECT_EQ(Status().step, Step::kIdle);
  EXPECT_FALSE(Lease(session).training.has_value());

  ASSERT_TRUE(Ask(Action::kResume).ok());
  EXPECT_EQ(Status().state, RunState::kRunning);
  EXPECT_EQ(Status().round, 2u);
  // The call that waited through the pause gets the work.
  EXPECT_TRUE(engine_.leases.at(ticket_).training.has_value());
}

TEST_F(Operations, ARunThatIsPausedBeforeItBeginsWaitsWithItsFirstRound) {
  ASSERT_TRUE(Ask(Action::kPause).ok());
  Join(Node());
  EXPECT_EQ(Status().state, RunState::kPaused);
  EXPECT_EQ(Status().round, 0u);
  ASSERT_TRUE(Ask(Action::kResume).ok());
  EXPECT_EQ(Status().round, 1u);
}

TEST_F(Operations, ADrainedRunFinishesItsRoundAndEndsAsInterrupted) {
  const SessionId session = Join(Node());
  EXPECT_THAT(*Ask(Action::kDrain), HasSubstr("after round 1"));
  EXPECT_EQ(Status().state, RunState::kDraining);
  EXPECT_FALSE(engine_.ended.has_value());
  TrainRound(session);
  EXPECT_EQ(engine_.ended, RunEnd::kInterrupted);
  EXPECT_EQ(engine_.completed(), 1u);
  EXPECT_FALSE(Ask(Action::kPause).ok());
}

TEST_F(Operations, ADrainedRunThatIsPausedEndsAtOnce) {
  const SessionId session = Join(Node());
  ASSERT_TRUE(Ask(Action::kPause).ok());
  TrainRound(session);
  ASSERT_TRUE(Ask(Action::kDrain).ok());
  EXPECT_EQ(engine_.ended, RunEnd::kInterrupted);
}

TEST_F(Operations, AnAbortedRoundBeginsAgainAndCountsEveryClientOnce) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply first = Lease(session);
  ASSERT_TRUE(first.training.has_value());
  EXPECT_EQ(Commit(session, *first.training).verdict, fleet::Verdict::kAccepted);
  const fleet::LeaseReply second = Lease(session);
  ASSERT_TRUE(second.training.has_value());
  ASSERT_GT(Status().counted, 0u);

  ASSERT_TRUE(Ask(Action::kAbortRound, "", 1).ok());
  EXPECT_EQ(Status().counted, 0u);
  EXPECT_EQ(Status().waiting, kCohort);
  // What was leased before is no longer wanted, and the worker is told so.
  const auto beat = engine_.Heartbeat(
      {.session = session,
       .held = {{second.training->assignments[0].client, second.training->assignments[0].fence}}},
      TimePoint{});
  EXPECT_EQ(beat.dropped.size(), 1u);
  EXPECT_EQ(Commit(session, *second.training).verdict, fleet::Verdict::kStale);
  // The driver's sums fail the test if a client is added twice or is missing.
  TrainRound(session);
  EXPECT_EQ(engine_.completed(), 1u);
  // The states that the dropped parts stored are not current.
  for (const fleet::Assignment& a : first.training->assignments) {
    const Fence current = engine_.SnapshotVersions(StateVersions::Staged::kLeftOut).Get(a.client);
    EXPECT_NE(current, a.fence);
  }
}

TEST_F(Operations, AnAbortWaitsForAPartThatIsBeingAdded) {
  const SessionId session = Join(Node());
  ASSERT_NO_FATAL_FAILURE(AbortDuringAnAddition(session));
  EXPECT_EQ(Status().step, Step::kTraining);
  engine_.RunAll(random_, TimePoint{});  // the part is added; then the round begins again
  running_ = 0;
  EXPECT_EQ(Status().counted, 0u);
  TrainRound(session);
  EXPECT_EQ(engine_.completed(), 1u);
}

// Nothing begins again behind the end of the run.
TEST_F(Operations, AnAbortThatWaitsForAPartEndsWithTheRun) {
  const SessionId session = Join(Node());
  ASSERT_NO_FATAL_FAILURE(AbortDuringAnAddition(session));
  engine_.Interrupt(TimePoint{});
  EXPECT_EQ(engine_.ended, RunEnd::kInterrupted);
  engine_.RunAll(random_, TimePoint{});  // the part is added
  running_ = 0;
  EXPECT_FALSE(Lease(session).training.has_value());
}

TEST_F(Operations, OnlyTheRoundThatIsMeantIsAborted) {
  EXPECT_FALSE(Ask(Action::kAbortRound, "", 1).ok()) << "no round is open";
  ASSERT_TRUE(engine_.Register(Node(), Table(), TimePoint{}).ok());
  const auto early = Ask(Action::kAbortRound, "", 1);
  EXPECT_THAT(std::string(early.status().message()), HasSubstr("has just begun"));
  const auto late = Ask(Action::kAbortRound, "", 7);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("round 1"));
}

TEST_F(Operations, ANodeInQuarantineLosesItsWorkAndIsRefusedUntilItIsAdmitted) {
  const SessionId session = Join(Node());
  fleet::RegisterRequest other = Node();
  other.name = "v";
  const SessionId v = Join(other);
  const fleet::LeaseReply lease = Lease(session);
  ASSERT_TRUE(lease.training.has_value());

  ASSERT_TRUE(Ask(Action::kQuarantine, "w").ok());
  EXPECT_EQ(Status().leased, 0u);
  EXPECT_EQ(Status().quarantine.size(), 1u);
  EXPECT_EQ(Commit(session, *lease.training).verdict, fleet::Verdict::kRegister);
  const auto refused = engine_.Register(Node(2), Table(), TimePoint{});
  EXPECT_TRUE(absl::IsUnavailable(refused.status()))
      << "it comes back by itself: " << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("a test"));
  running_ = 0;
  TrainRound(v);
  EXPECT_EQ(engine_.completed(), 1u);

  ASSERT_TRUE(Ask(Action::kAdmit, "w").ok());
  EXPECT_TRUE(engine_.Register(Node(2), Table(), TimePoint{}).ok());
  EXPECT_TRUE(absl::IsNotFound(Ask(Action::kAdmit, "w").status()));
}

TEST_F(Operations, ANodeWhoseMemoryHoldsTheStatesIsNotPutIntoQuarantine) {
  fleet::RegisterRequest node = Node();
  node.volatile_state = true;
  const SessionId session = Join(node);
  const fleet::LeaseReply lease = Lease(session);
  ASSERT_TRUE(lease.training.has_value());
  Commit(session, *lease.training);
  EXPECT_FALSE(Ask(Action::kQuarantine, "w").ok());
  EXPECT_FALSE(engine_.ended.has_value());
  EXPECT_TRUE(Ask(Action::kAdmit, "w").status().code() == absl::StatusCode::kNotFound);
}

// Of a stepwise run (EngineOptions::stepwise).
class Steps : public Operations {
 protected:
  Steps() : Operations(/*stepwise=*/true) {}
  void GoOnTo(uint32_t round) {
    engine_.GoOnTo(Round(round), TimePoint{});
    engine_.RunAll(random_, TimePoint{});
    running_ = 0;
  }
};

TEST_F(Steps, EachRoundButTheFirstWaits) {
  const SessionId session = Join(Node());
  TrainRound(session);
  EXPECT_EQ(engine_.completed(), 1u);
  EXPECT_FALSE(Lease(session).training.has_value());
  GoOnTo(1);
  EXPECT_FALSE(engine_.leases.contains(ticket_)) << "it has been done";
  GoOnTo(2);
  EXPECT_TRUE(engine_.leases.at(ticket_).training.has_value())
      << "the call that waited gets the work";
}

TEST_F(Steps, ARoundMayBeAllowedBeforeItsTurn) {
  const SessionId session = Join(Node());
  GoOnTo(3);
  TrainRound(session);
  TrainRound(session);
  EXPECT_EQ(engine_.completed(), 2u);
  EXPECT_EQ(Status().round, 3u);
}

TEST_F(Steps, StopHereEndsARunThatWaitsAndNoOther) {
  const SessionId session = Join(Node());
  engine_.StopHere("too early", TimePoint{});
  EXPECT_EQ(Status().state, RunState::kRunning);
  TrainRound(session);
  engine_.StopHere("good enough", TimePoint{});
  EXPECT_EQ(Status().state, RunState::kEnding) << "its client states are digested";
  GoOnTo(2);
  EXPECT_EQ(Status().round, 1u);
}

TEST_F(Steps, AnOperatorsPauseHoldsWhatIsAllowed) {
  const SessionId session = Join(Node());
  TrainRound(session);
  ASSERT_TRUE(Ask(Action::kPause).ok());
  GoOnTo(2);
  EXPECT_EQ(Status().state, RunState::kPaused);
  ASSERT_TRUE(Ask(Action::kResume).ok());
  EXPECT_EQ(Status().round, 2u);
}

TEST_F(Operations, AStatusSaysWhoHasWhat) {
  EXPECT_EQ(Status().state, RunState::kWaiting);
  const SessionId session = Join(Node());
  const fleet::LeaseReply lease = Lease(session);
  ASSERT_TRUE(lease.training.has_value());
  const admin::RunStatus status = Status();
  EXPECT_EQ(status.state, RunState::kRunning);
  EXPECT_EQ(status.step, Step::kTraining);
  EXPECT_EQ(status.cohort, kCohort);
  EXPECT_EQ(status.leased, lease.training->assignments.size());
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0].name, "w");
  EXPECT_EQ(status.nodes[0].leased, status.leased);
  EXPECT_EQ(status.nodes[0].clients, kPopulation);
  EXPECT_THAT(status.nodes[0].doing, HasSubstr("trains"));
}

}  // namespace
}  // namespace macaw::server
