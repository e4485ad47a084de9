#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "scheduler/plan.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

// When the engine answers a call for work: at once, later, or with "commit".
namespace macaw::server {
namespace {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::kCohort;
using fixtures::NodeWithEverybody;
using fixtures::Table;
using fixtures::TestRun;

class HandOut : public testing::Test {
 protected:
  void Start(const std::string& policy) {
    scheduler_ = *scheduler::MakeScheduler({.policy = policy});
    engine_ = std::make_unique<EngineDriver>(EngineOptions{.run = TestRun(1), .workers = 2},
                                             *scheduler_, durable_, /*rounds=*/1, /*phases=*/1);
    engine_->compact = compact_;
    first_ = Join("first");
    second_ = Join("second");
    engine_->RunAll(random_, now_);
  }
  SessionId Join(const std::string& name) {
    return engine_->Register(NodeWithEverybody(name, /*slots=*/1), Table(), now_)->session;
  }
  Ticket Ask(SessionId session, uint32_t wanted, uint32_t running, std::vector<Digest> have = {}) {
    engine_->Lease(++tickets_,
                   {.session = session, .wanted = wanted, .running = running, .have = have},
                   FromSeconds(30), now_);
    return tickets_;
  }
  bool Answered(Ticket ticket) const { return engine_->leases.contains(ticket); }
  const fleet::LeaseReply& Answer(Ticket ticket) const { return engine_->leases.at(ticket); }
  size_t Leased(Ticket ticket) const {
    return Answered(ticket) && Answer(ticket).training.has_value()
               ? Answer(ticket).training->assignments.size()
               : 0;
  }

  std::vector<fleet::CompactForm> compact_;  // of the broadcast
  Durable durable_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::unique_ptr<EngineDriver> engine_;
  RandomStream random_{{.seed = 1}};
  TimePoint now_{};
  Ticket tickets_ = 0;
  SessionId first_, second_;
};

// The worker's speed is unknown, so it gets one client and must ask again when it has trained it. A
// call that asks ahead is answered at once, because an open poll would prevent the later call.
TEST_F(HandOut, WhoAsksAheadInVainIsToldToAskWithASlotIdle) {
  Start("planned_stealing");
  const Ticket work = Ask(first_, 1, 0);
  EXPECT_EQ(Leased(work), 1u);
  EXPECT_TRUE(Answer(work).when_idle);
  const Ticket ahead = Ask(first_, 0, 1);
  ASSERT_TRUE(Answered(ahead));
  EXPECT_EQ(Answer(ahead).next, fleet::Next::kWait);
  EXPECT_TRUE(Answer(ahead).when_idle);
  now_ += FromSeconds(5);
  EXPECT_EQ(Leased(Ask(first_, 1, 1)), 1u);
}

// A change is of use to a worker that has what it is a change of.
TEST_F(HandOut, OffersTheFormsOfTheBroadcastThatTheWorkerCanRead) {
  const Digest held = DigestOf("held"), alone = DigestOf("alone"), change = DigestOf("change");
  compact_ = {{Digest(), alone, 3}, {held, change, 2}};
  Start("planned_stealing");
  const auto forms = [&](Ticket ticket) {
    std::vector<Digest> digests;
    const fleet::Blob& blob = Answer(ticket).training->broadcast.channels.at(0);
    EXPECT_TRUE(blob.named()) << "for a worker that knows no short forms";
    for (const fleet::CompactForm& form : blob.compact) digests.push_back(form.digest);
    return digests;
  };
  const Ticket first = Ask(first_, 1, 0), second = Ask(second_, 1, 0, {held});
  ASSERT_EQ(Leased(first), 1u);
  ASSERT_EQ(Leased(second), 1u);
  EXPECT_EQ(forms(first), std::vector<Digest>{alone});
  EXPECT_EQ(forms(second), (std::vector<Digest>{alone, change}));
}

TEST_F(HandOut, WhoeverIsIdleGetsWhatIsLeftUntilNothingIs) {
  Start("planned_stealing");
  size_t leased = Leased(Ask(second_, 1, 0));
  Ticket last = Ask(first_, 1, 0);
  for (int i = 0; i < 100 && leased < kCohort; ++i) {
    now_ += FromSeconds(3);
    engine_->Heartbeat({.session = first_}, now_);
    engine_->Heartbeat({.session = second_}, now_);
    engine_->Tick(now_);
    if (!Answered(last)) continue;  // it waits while the second worker may still get the client
    leased += Leased(last);
    if (leased < kCohort) last = Ask(first_, 1, 1);
  }
  EXPECT_EQ(leased, kCohort);
  EXPECT_EQ(Answer(Ask(first_, 1, 1)).next, fleet::Next::kCommit);
}

// A worker whose own queue is finished waits for clients of other workers' queues. Once the others
// have taken all their clients, there is nothing to wait for.
TEST_F(HandOut, WhoWaitsInVainIsToldToCommit) {
  Start("round_robin");
  EXPECT_EQ(Leased(Ask(first_, 1, 0)), kCohort / 2);
  const Ticket waiting = Ask(first_, 1, 1);
  EXPECT_FALSE(Answered(waiting));
  EXPECT_EQ(Leased(Ask(second_, 1, 0)), kCohort / 2);
  ASSERT_TRUE(Answered(waiting));
  EXPECT_EQ(Answer(waiting).next, fleet::Next::kCommit);
}

// The same where the last client goes to a node that waited, when its time to look again has come.
// When nodes ask is drawn, until that has happened in some rounds.
TEST_F(HandOut, WhoWaitsBesideTheOneThatGetsTheLastIsToldToCommit) {
  struct Asker {
    SessionId session;
    Ticket open = 0;
    size_t leased = 0;
  };
  size_t ended_so = 0;
  for (int round = 0; round < 400; ++round) {
    durable_ = {};
    Start("planned_stealing");
    std::vector<Asker> askers = {{first_}, {second_}, {Join("third")}};
    size_t leased = 0;
    const auto take_answers = [&] {
      for (Asker& one : askers) {
        if (one.open == 0 || !Answered(one.open)) continue;
        one.leased += Leased(one.open);
        leased += Leased(one.open);
        one.open = 0;
      }
    };
    for (int i = 0; i < 1000 && leased < kCohort; ++i) {
      Asker& one = askers[random_.Below(askers.size())];
      if (one.open == 0 && random_.Below(4) > 0) {
        one.open = Ask(one.session, 1, one.leased > 0 ? 1 : 0);
        take_answers();
        continue;
      }
      now_ += FromSeconds(static_cast<double>(1 + random_.Below(3)));
      for (const Asker& each : askers) engine_->Heartbeat({.session = each.session}, now_);
      std::vector<Ticket> waiting;
      for (const Asker& each : askers) {
        if (each.open != 0 && each.leased > 0) waiting.push_back(each.open);
      }
      engine_->Tick(now_);
      take_answers();
      if (leased < kCohort || waiting.size() < 2) continue;
      ++ended_so;
      for (const Ticket ticket : waiting)
        ASSERT_TRUE(Answered(ticket)) << "it would wait until its call ends";
    }
    ASSERT_EQ(leased, kCohort);
  }
  EXPECT_GT(ended_so, 10u);
}

// A resumed run first evaluates the model that it goes on with.
TEST_F(HandOut, WhoAskedBeforeTheLastNodeRegisteredIsServedWhenItDoes) {
  scheduler_ = *scheduler::MakeScheduler({.policy = "planned_stealing"});
  durable_.completed = 2;
  durable_.owes_evaluation = true;
  EngineOptions options{.run = TestRun(4), .workers = 2, .completed = 2};
  options.evaluation_gates = true;
  options.evaluate_first = fixtures::BlobOf(Round(2), Phase(9));
  engine_ = std::make_unique<EngineDriver>(options, *scheduler_, durable_, /*rounds=*/4,
                                           /*phases=*/1);
  first_ = Join("first");
  const Ticket early = Ask(first_, 1, 0);
  EXPECT_FALSE(Answered(early));
  second_ = Join("second");
  ASSERT_TRUE(Answered(early)) << "nothing else happens until it asks again";
  EXPECT_TRUE(Answer(early).evaluation.has_value());
}

TEST_F(HandOut, AWorkerThatJoinsInMidRoundGetsAShare) {
  Start("planned_stealing");
  Ask(first_, 1, 0);
  const SessionId third = Join("third");
  EXPECT_EQ(Leased(Ask(third, 1, 0)), 1u);
}

TEST_F(HandOut, WhatALostWorkerHadGoesToWhoWaits) {
  Start("longest_first");
  EXPECT_GT(Leased(Ask(first_, 1, 0)), 0u);
  const Ticket waiting = Ask(first_, 1, 1);
  EXPECT_FALSE(Answered(waiting));
  engine_->Release({.session = second_, .leaving = true}, now_);
  EXPECT_EQ(Leased(waiting), 1u);
}

}  // namespace
}  // namespace macaw::server
