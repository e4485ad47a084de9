// Calls that a node can repeat without end: they leave a bounded number of records.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "tests/server/one_round.h"

namespace macaw::server {
namespace {

using fleet::Next;
using fleet::Verdict;

fleet::CommitRequest NamesNobody(SessionId session, uint64_t commit,
                                 const fleet::TrainingLease& lease) {
  fleet::CommitRequest request{.session = session, .commit_id = commit};
  request.part = fleet::Part{.round = lease.round, .broadcast = lease.broadcast.name};
  return request;
}

// Workers of 0.1.0 send one when all their clients were taken back before they began them.
TEST_F(OneRound, APartThatNamesNobodyIsNoEvent) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply lease = Lease(session);
  ASSERT_TRUE(lease.training.has_value());
  int records = 0;
  engine_.on_record = [&](const log::Record&) { ++records; };
  for (int i = 0; i < 1000; ++i) {
    fleet::CommitRequest nobody = NamesNobody(session, ++commits_, *lease.training);
    if (i % 2 == 1) nobody.part->round.value += 1;
    engine_.Hold(++ticket_, {});
    engine_.Commit(ticket_, nobody, absl::OkStatus(), TimePoint{});
    EXPECT_EQ(engine_.commits.at(ticket_).verdict, Verdict::kAccepted);
  }
  EXPECT_EQ(records, 0);
  engine_.Commit(++ticket_, NamesNobody(session, commits_, *lease.training), absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(engine_.commits.at(ticket_).verdict, Verdict::kDuplicate);
  EXPECT_TRUE(engine_.Leases(session, PartOf(*lease.training))) << "its clients are still its own";
}

TEST_F(OneRound, ANodeOnTrialShowsThatItWorksByAClientAndNotByAnEmptyPart) {
  EngineDriver engine({.run = TestRun(3), .workers = 2}, scheduler_, durable_, /*rounds=*/3,
                      /*phases=*/1);
  const auto join = [&](const std::string& name) {
    const auto reply = engine.Register(NodeWithEverybody(name, 2), Table(), TimePoint{});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->session : SessionId();
  };
  const SessionId idle = join("idle");
  join("other");
  engine.RunAll(random_, TimePoint{});
  const auto on_trial = [&] {
    admin::RunStatus status;
    engine.Describe(status, TimePoint{});
    return status.nodes.at(0).on_trial;
  };
  engine.Lease(++ticket_, {.session = idle, .wanted = 2}, FromSeconds(1), TimePoint{});
  const fleet::TrainingLease lease = engine.leases.at(ticket_).training.value();
  fleet::CommitRequest nothing = NamesNobody(idle, 1, lease);
  for (const fleet::Assignment& one : lease.assignments) {
    nothing.part->left_out.push_back({.attempt = {one.client, one.fence},
                                      .reason = fleet::LeftOutReason::kFailed,
                                      .message = "no"});
  }
  engine.Commit(++ticket_, nothing, absl::OkStatus(), TimePoint{});
  EXPECT_TRUE(on_trial());
  engine.Commit(++ticket_, NamesNobody(idle, 2, lease), absl::OkStatus(), TimePoint{});
  EXPECT_TRUE(on_trial());
}

TEST_F(OneRound, ANodeWhoseLeasesNeverArriveGetsAFewAtOnceAndThenOneASecond) {
  const SessionId session = Join(Node());
  int leased = 0, requeued = 0;
  engine_.on_record = [&](const log::Record& record) {
    leased += std::holds_alternative<log::Leased>(record) ? 1 : 0;
    requeued += std::holds_alternative<log::Requeued>(record) ? 1 : 0;
  };
  const auto ask = [&](SessionId of, TimePoint now) {
    engine_.Lease(++ticket_, {.session = of, .wanted = 2, .paced = true}, FromSeconds(1), now);
    return engine_.leases.contains(ticket_) ? engine_.leases.at(ticket_) : fleet::LeaseReply{};
  };
  for (int i = 0; i < 1000; ++i) {
    const fleet::LeaseReply reply = ask(session, TimePoint{});
    EXPECT_EQ(reply.next, i <= 20 ? Next::kWork : Next::kWait);
    EXPECT_EQ(reply.training.has_value(), i <= 20);
  }
  EXPECT_EQ(leased, 21);
  EXPECT_EQ(requeued, 20);
  // Another process of the same name has no more of them.
  const SessionId again = Join(Node(2));
  EXPECT_TRUE(ask(again, TimePoint{}).training.has_value()) << "it has none to lose";
  EXPECT_EQ(ask(again, TimePoint{}).next, Next::kWait);
  // One whose answers do get lost gets on.
  const fleet::LeaseReply later = ask(again, TimePoint{} + FromSeconds(1));
  ASSERT_TRUE(later.training.has_value());
  // The supervisor's own workers are not paced.
  engine_.Lease(++ticket_, {.session = again, .wanted = 2}, FromSeconds(1),
                TimePoint{} + FromSeconds(1));
  const fleet::LeaseReply own = engine_.leases.at(ticket_);
  ASSERT_TRUE(own.training.has_value());
  EXPECT_TRUE(engine_.Leases(again, PartOf(*own.training)));
}

}  // namespace
}  // namespace macaw::server
