// Tests of the round engine with versions of client states.
#include "tests/server/one_round.h"

namespace macaw::server {
namespace {

class OneStatefulRound : public OneRound {
 protected:
  OneStatefulRound() : OneRound({.stateful = true}) {}
};

TEST_F(OneStatefulRound, AStateIsCurrentOnceItsRoundIsDone) {
  const SessionId session = Join(Node());
  const fleet::Part part = PartOf(*Lease(session).training);
  engine_.Hold(++ticket_, {});
  engine_.Commit(ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_TRUE(engine_.SnapshotVersions(StateVersions::Staged::kLeftOut).empty());
  EXPECT_EQ(engine_.SnapshotVersions(StateVersions::Staged::kIncluded).size(),
            part.included.size());
}

TEST_F(OneStatefulRound, AStateOfAPartThatWasTurnedDownIsNeverCurrent) {
  const SessionId session = Join(Node());
  fleet::Part part = PartOf(*Lease(session).training);
  part.included[0].weight += 1;
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(engine_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
  EXPECT_TRUE(engine_.SnapshotVersions(StateVersions::Staged::kIncluded).empty());
}

TEST_F(OneStatefulRound, AStateThatCannotBeReadStopsTheRunWithTheClientsName) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  const fleet::Assignment& a = reply.training->assignments.at(0);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.name};
  part.left_out.push_back({.attempt = {a.client, {a.fence.epoch, a.fence.counter + 100}},
                           .reason = fleet::LeftOutReason::kState,
                           .message = "not in the store"});
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_FALSE(engine_.ended.has_value()) << "somebody who is too late may say what he wants";
  part.left_out[0].attempt.fence = a.fence;
  engine_.Commit(++ticket_, {.session = session, .commit_id = 2, .part = part}, absl::OkStatus(),
                 TimePoint{});
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_THAT(
      std::string(engine_.error.message()),
      testing::AllOf(testing::HasSubstr(absl::StrCat("client ", a.client.value)),
                     testing::HasSubstr("not in the store"), testing::HasSubstr("--state-reset")));
}

TEST_F(OneStatefulRound, AStateThatOneNodeCannotReadIsForAnotherAndWhatNoneCanReadStopsTheRun) {
  const SessionId first = Join(Node());
  fleet::RegisterRequest other = Node();
  other.name = "v";
  const SessionId second = Join(other);
  running_ = 0;
  const fleet::LeaseReply reply = Lease(first);
  ASSERT_TRUE(reply.training.has_value());
  const ClientId client = reply.training->assignments.at(0).client;
  const auto report = [&](SessionId session, const fleet::TrainingLease& lease, Fence fence) {
    fleet::Part part{.round = lease.round, .broadcast = lease.broadcast.name};
    part.left_out = {{.attempt = {client, fence},
                      .reason = fleet::LeftOutReason::kState,
                      .message = "not in the store"}};
    engine_.Commit(++ticket_, {.session = session, .commit_id = ++commits_, .part = part},
                   absl::OkStatus(), TimePoint{});
    EXPECT_EQ(engine_.commits.at(ticket_).verdict == fleet::Verdict::kAccepted,
              !engine_.ended.has_value());
  };
  report(first, *reply.training, reply.training->assignments[0].fence);
  ASSERT_FALSE(engine_.ended.has_value()) << engine_.error;
  for (int i = 0; i < 50; ++i) {  // a node that could not read the state is not asked again
    running_ = 1;
    const fleet::LeaseReply again = Lease(first);
    if (!again.training.has_value()) break;
    for (const auto& a : again.training->assignments) EXPECT_NE(a.client, client);
  }
  // The other node gets the client, once the plan sees that the first node does not begin it.
  Ticket poll = 0;
  for (int i = 0; i < 200 && !engine_.ended.has_value(); ++i) {
    const TimePoint now = TimePoint{} + FromSeconds(0.1 * i);
    if (poll == 0) {
      poll = ++ticket_;
      engine_.Lease(poll, {.session = second, .wanted = 2, .running = i > 0 ? 1u : 0u},
                    FromSeconds(60), now);
    }
    engine_.Tick(now);
    if (!engine_.leases.contains(poll)) continue;
    const std::optional<fleet::TrainingLease> theirs = engine_.leases.at(poll).training;
    poll = 0;
    for (const auto& a : theirs.value_or(fleet::TrainingLease{}).assignments) {
      if (a.client == client) report(second, *theirs, a.fence);
    }
  }
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_THAT(std::string(engine_.error.message()),
              testing::HasSubstr(absl::StrCat("client ", client.value)));
}

TEST_F(OneStatefulRound, StatesInMemoryAllowNoSecondWorkerAndEndWithTheirs) {
  fleet::RegisterRequest node = Node();
  node.volatile_state = true;
  const SessionId session = Join(node);
  fleet::RegisterRequest second = Node();
  second.name = "v";
  EXPECT_THAT(std::string(engine_.Register(second, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("no second worker"));
  const fleet::LeaseReply reply = Lease(session);
  const fleet::Part part = PartOf(*reply.training);
  engine_.Hold(++ticket_, {});
  engine_.Commit(ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  engine_.Release({.session = session, .leaving = true}, TimePoint{});
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_THAT(std::string(engine_.error.message()),
              testing::HasSubstr("in its memory and is gone"));
}

}  // namespace
}  // namespace macaw::server
