#include "server/engine/round_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "scheduler/policies/policies.h"
#include "tests/server/fake_host.h"
#include "training/api/metrics.h"

// The engine's rules one by one, with one worker in one round.
namespace macaw::server {
namespace {

using testing_support::Durable;
using testing_support::Examples;
using testing_support::FakeHost;
using testing_support::kCohort;
using testing_support::kPopulation;
using testing_support::Table;
using testing_support::TestRun;

class OneRound : public testing::Test {
 protected:
  explicit OneRound(bool stateful = false, uint32_t rounds = 1)
      : host_(durable_, rounds, 1),
        engine_({.run = TestRun(rounds), .workers = 1, .stateful = stateful}, scheduler_, host_) {
    host_.Bind(&engine_);
  }
  fleet::RegisterRequest Node(uint64_t incarnation = 1) {
    return {.name = "w",
            .incarnation = incarnation,
            .slots = 2,
            .input_shape = {2},
            .classes = 2,
            .clients = kPopulation,
            .central_test_rows = 35};
  }
  SessionId Join(const fleet::RegisterRequest& node) {
    const auto reply = engine_.Register(node, Table(), TimePoint{});
    EXPECT_TRUE(reply.ok()) << reply.status();
    while (host_.RunOne(random_, TimePoint{})) {
    }
    return reply.ok() ? reply->session : SessionId();
  }
  fleet::LeaseReply Lease(SessionId session) {
    engine_.Lease(++ticket_, {.session = session, .wanted = 2, .running = running_}, FromSeconds(1),
                  TimePoint{});
    running_ = 1;
    return host_.leases.contains(ticket_) ? host_.leases.at(ticket_) : fleet::LeaseReply{};
  }

  // What was leased, trained, with a state of each client.
  static fleet::Part PartOf(const fleet::TrainingLease& lease) {
    fleet::Part part{.round = lease.round, .broadcast = lease.broadcast.digest};
    for (const auto& a : lease.assignments) {
      part.included.push_back(
          {.attempt = {a.client, a.fence},
           .weight = a.weight,
           .examples = Examples()[a.client.value],
           .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
           .has_state = true});
    }
    return part;
  }

  Durable durable_;
  FakeHost host_;
  scheduler::PlannedStealingScheduler scheduler_;
  RoundEngine engine_;
  RandomStream random_{{.seed = 1}};
  Ticket ticket_ = 0;
  uint64_t commits_ = 0;
  uint32_t running_ = 0;  // after the first lease it holds something
};

TEST_F(OneRound, AClientThatKillsItsWorkerThreeTimesStopsTheRunByName) {
  std::optional<ClientId> poison;
  fleet::RegisterRequest node = Node();
  for (uint64_t incarnation = 1; incarnation <= 4 && !host_.ended.has_value(); ++incarnation) {
    node.incarnation = incarnation;
    const SessionId session = Join(node);
    if (host_.ended.has_value()) break;
    node.died_running.clear();
    for (bool found = false; !found;) {
      const fleet::LeaseReply reply = Lease(session);
      ASSERT_TRUE(reply.training.has_value());
      for (const auto& a : reply.training->assignments) {
        if (!poison.has_value()) poison = a.client;
        if (a.client != *poison) continue;
        node.died_running = {{a.client, a.fence}};
        found = true;
      }
    }
  }
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_EQ(*host_.ended, RunEnd::kFailed);
  EXPECT_THAT(std::string(host_.error.message()),
              testing::HasSubstr(absl::StrCat("client ", poison->value)));
}

TEST_F(OneRound, DeathsThatAWorkerNeverHadTheLeasesOfCountNothing) {
  const SessionId honest = Join(Node());
  const fleet::LeaseReply lease = Lease(honest);
  ASSERT_TRUE(lease.training.has_value());
  fleet::RegisterRequest liar = Node();
  liar.name = "liar";
  for (const auto& a : lease.training->assignments)
    liar.died_running.push_back({a.client, a.fence});
  for (uint64_t counter = 0; counter < 100; ++counter)
    liar.died_running.push_back({lease.training->assignments[0].client, {1, counter}});
  Join(liar);
  EXPECT_FALSE(host_.ended.has_value()) << host_.error;
}

TEST_F(OneRound, ANodeWithOtherDataOrAnotherProfileIsRefusedWithTheReason) {
  Join(Node());
  fleet::RegisterRequest other = Node();
  other.name = "v";
  other.data_digest = DigestOf("other files");
  EXPECT_THAT(std::string(engine_.Register(other, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("data differs"));
  other = Node();
  other.name = "v";
  other.profile.instruction_set = "avx2";
  EXPECT_THAT(std::string(engine_.Register(other, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("numeric profile"));
  other = Node();
  other.name = "v";
  other.input_shape = {3};
  EXPECT_FALSE(engine_.Register(other, Table(), TimePoint{}).ok());
}

// It would be waited for in vain: the rest of its population comes from nowhere.
TEST_F(OneRound, APopulationOfAnotherSizeThanTheRunsIsRefusedAtOnce) {
  RunConfig run = TestRun(1);
  run.clients = kPopulation;
  RoundEngine engine({.run = run}, scheduler_, host_);
  fleet::RegisterRequest node = Node();
  node.clients = kPopulation - 1;
  const fleet::ClientTable table{.rows = std::vector<uint32_t>(kPopulation - 1, 1)};
  EXPECT_THAT(std::string(engine.Register(node, table, TimePoint{}).status().message()),
              testing::HasSubstr("its data has 39 clients, the run 40"));
}

TEST_F(OneRound, ACohortLargerThanThePopulationFailsTheRunNotTheProcess) {
  fleet::RegisterRequest node = Node();
  node.clients = 5;
  const auto reply = engine_.Register(node, {.rows = std::vector<uint32_t>(5, 1)}, TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("cohort.size is 12"));
}

TEST_F(OneRound, AStateInARunWithoutStatesIsRefused) {
  const SessionId session = Join(Node());
  const fleet::Part part = PartOf(*Lease(session).training);
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
}

TEST_F(OneRound, ANodeThatIsThereButGetsNothingDoneLosesItsLeases) {
  for (const bool works : {true, false}) {
    fleet::RegisterRequest node = Node();
    node.name = works ? "works" : "stuck";
    const SessionId session = Join(node);
    running_ = 0;
    const fleet::LeaseReply lease = Lease(session);
    ASSERT_TRUE(lease.training.has_value());
    std::vector<Attempt> held;
    for (const auto& a : lease.training->assignments) held.push_back({a.client, a.fence});
    std::optional<int> lost_after;
    for (int seconds = 10; seconds <= 1000 && !lost_after.has_value(); seconds += 10) {
      const TimePoint now = TimePoint{} + FromSeconds(seconds);
      const auto reply = engine_.Heartbeat(
          {.session = session, .held = held, .progress = works ? uint64_t(seconds) : 0}, now);
      if (!reply.dropped.empty()) lost_after = seconds;
      engine_.Tick(now);
    }
    EXPECT_EQ(lost_after.has_value(), !works);
    EXPECT_GE(lost_after.value_or(300), 300) << "a step may take long";
    engine_.Release({.session = session, .leaving = true}, TimePoint{});
  }
}

TEST_F(OneRound, SlotsThatNoMachineHasAreRefused) {
  fleet::RegisterRequest node = Node();
  node.slots = 65536;
  EXPECT_THAT(std::string(engine_.Register(node, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("65536 slots; at most 4096"));
}

class ThreeRounds : public OneRound {
 protected:
  explicit ThreeRounds(uint32_t rounds = 3) : OneRound(/*stateful=*/false, rounds) {}
  void Step() { ASSERT_TRUE(host_.RunOne(random_, TimePoint{})); }
  // From the first lease of a round to the preparation of the next, which is still to be done.
  void TrainRound(SessionId session) {
    running_ = 0;
    fleet::Part part;
    std::vector<ClientId> trained;
    for (bool last = false; !last;) {
      const fleet::LeaseReply lease = Lease(session);
      ASSERT_TRUE(lease.training.has_value());
      last = lease.training->last;
      fleet::Part piece = PartOf(*lease.training);
      part.round = piece.round, part.broadcast = piece.broadcast;
      for (fleet::ClientRecord& record : piece.included) {
        record.has_state = false;
        if (testing_support::IsLeftOut(piece.round, record.attempt.client)) {
          part.left_out.push_back({.attempt = record.attempt});
        } else {
          trained.push_back(record.attempt.client);
          part.included.push_back(std::move(record));
        }
      }
    }
    host_.Hold(++ticket_, trained);
    engine_.Commit(ticket_, {.session = session, .commit_id = ++commits_, .part = part},
                   absl::OkStatus(), TimePoint{});
    Step();  // it is added
    Step();  // and the round applied
  }
  void Drain() {
    while (host_.RunOne(random_, TimePoint{})) {
    }
  }
  enum class Clients : uint8_t { kTrained, kLeftOut };
  // A whole round, its evaluation and the host's work included.
  void WholeRound(SessionId session, Clients clients) {
    Drain();
    running_ = 0;
    std::set<ClientId> trained;
    host_.Expect(std::set<ClientId>{});
    for (bool last = false; !last;) {
      const fleet::LeaseReply lease = Lease(session);
      ASSERT_TRUE(lease.training.has_value() || lease.evaluation.has_value());
      fleet::CommitRequest request{.session = session, .commit_id = ++commits_};
      if (lease.evaluation.has_value()) {
        for (const auto& task : lease.evaluation->tasks) {
          const auto rows = static_cast<double>(task.end - task.begin);
          request.evaluations.push_back(
              {.task = task, .round = lease.evaluation->round, .sums = {rows, 0, 0}});
        }
      }
      std::vector<ClientId> part;
      if (lease.training.has_value()) {
        last = lease.training->last;
        request.part = PartOf(*lease.training);
        for (fleet::ClientRecord& record : request.part->included) {
          record.has_state = false;
          if (clients == Clients::kTrained) {
            part.push_back(record.attempt.client);
          } else {
            request.part->left_out.push_back({.attempt = record.attempt, .message = "no rows"});
          }
        }
        if (clients == Clients::kLeftOut) request.part->included.clear();
      }
      trained.insert(part.begin(), part.end());
      host_.Expect(trained);
      host_.Hold(++ticket_, std::move(part));
      engine_.Commit(ticket_, request, absl::OkStatus(), TimePoint{});
      Drain();
      EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kAccepted);
    }
  }
};

TEST_F(ThreeRounds, WhatIsToBeEvaluatedGoesOutWithTheNextTraining) {
  const SessionId session = Join(Node());
  TrainRound(session);
  Step();
  TrainRound(session);  // to be evaluated
  running_ = 0;
  Lease(session);
  EXPECT_FALSE(host_.leases.contains(ticket_)) << "alone, it would leave slots idle at its end";
  Step();
  ASSERT_TRUE(host_.leases.contains(ticket_));
  EXPECT_TRUE(host_.leases.at(ticket_).training.has_value());
  EXPECT_TRUE(host_.leases.at(ticket_).evaluation.has_value());
}

TEST_F(ThreeRounds, ARoundThatLosesEveryClientMovesOn) {
  const SessionId session = Join(Node());
  WholeRound(session, Clients::kLeftOut);
  EXPECT_FALSE(host_.ended.has_value()) << host_.error;
  EXPECT_EQ(engine_.completed(), 1u);
  EXPECT_EQ(engine_.open_round(), Round(2));
}

class TwelveRounds : public ThreeRounds {
 protected:
  TwelveRounds() : ThreeRounds(12) {}
};

TEST_F(TwelveRounds, FiveLostRoundsInARowEndTheRunWithTheFirstReason) {
  const SessionId session = Join(Node());
  for (int round = 1; round <= 2; ++round) WholeRound(session, Clients::kLeftOut);
  WholeRound(session, Clients::kTrained);
  for (int round = 4; round <= 7; ++round) WholeRound(session, Clients::kLeftOut);
  ASSERT_FALSE(host_.ended.has_value()) << host_.error;
  WholeRound(session, Clients::kLeftOut);
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_EQ(engine_.completed(), 7u);
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("round 8"));
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("no rows"));
}

class OneStatefulRound : public OneRound {
 protected:
  OneStatefulRound() : OneRound(/*stateful=*/true) {}
};

TEST_F(OneStatefulRound, AStateIsCurrentOnceItsRoundIsDone) {
  const SessionId session = Join(Node());
  const fleet::Part part = PartOf(*Lease(session).training);
  host_.Hold(++ticket_, {});
  engine_.Commit(ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_TRUE(engine_.SnapshotVersions(/*closing=*/false).empty());
  EXPECT_EQ(engine_.SnapshotVersions(/*closing=*/true).size(), part.included.size());
}

TEST_F(OneStatefulRound, AStateOfAPartThatWasTurnedDownIsNeverCurrent) {
  const SessionId session = Join(Node());
  fleet::Part part = PartOf(*Lease(session).training);
  part.included[0].weight += 1;
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
  EXPECT_TRUE(engine_.SnapshotVersions(/*closing=*/true).empty());
}

TEST_F(OneStatefulRound, AStateThatCannotBeReadStopsTheRunWithTheClientsName) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  const fleet::Assignment& a = reply.training->assignments.at(0);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  part.left_out.push_back({.attempt = {a.client, {a.fence.epoch, a.fence.counter + 100}},
                           .reason = fleet::LeftOutReason::kState,
                           .message = "not in the store"});
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_FALSE(host_.ended.has_value()) << "somebody who is too late may say what he wants";
  part.left_out[0].attempt.fence = a.fence;
  engine_.Commit(++ticket_, {.session = session, .commit_id = 2, .part = part}, absl::OkStatus(),
                 TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(
      std::string(host_.error.message()),
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
    fleet::Part part{.round = lease.round, .broadcast = lease.broadcast.digest};
    part.left_out = {{.attempt = {client, fence},
                      .reason = fleet::LeftOutReason::kState,
                      .message = "not in the store"}};
    engine_.Commit(++ticket_, {.session = session, .commit_id = ++commits_, .part = part},
                   absl::OkStatus(), TimePoint{});
    EXPECT_EQ(host_.commits.at(ticket_).verdict == fleet::Verdict::kAccepted,
              !host_.ended.has_value());
  };
  report(first, *reply.training, reply.training->assignments[0].fence);
  ASSERT_FALSE(host_.ended.has_value()) << host_.error;
  for (int i = 0; i < 50; ++i) {  // who could not read it is not asked again
    running_ = 1;
    const fleet::LeaseReply again = Lease(first);
    if (!again.training.has_value()) break;
    for (const auto& a : again.training->assignments) EXPECT_NE(a.client, client);
  }
  // The other one gets it, once the plan sees that the first does not begin it.
  Ticket poll = 0;
  for (int i = 0; i < 200 && !host_.ended.has_value(); ++i) {
    const TimePoint now = TimePoint{} + FromSeconds(0.1 * i);
    if (poll == 0) {
      poll = ++ticket_;
      engine_.Lease(poll, {.session = second, .wanted = 2, .running = i > 0 ? 1u : 0u},
                    FromSeconds(60), now);
    }
    engine_.Tick(now);
    if (!host_.leases.contains(poll)) continue;
    const std::optional<fleet::TrainingLease> theirs = host_.leases.at(poll).training;
    poll = 0;
    for (const auto& a : theirs.value_or(fleet::TrainingLease{}).assignments) {
      if (a.client == client) report(second, *theirs, a.fence);
    }
  }
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()),
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
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  for (const auto& a : reply.training->assignments) {
    part.included.push_back(
        {.attempt = {a.client, a.fence},
         .weight = a.weight,
         .examples = Examples()[a.client.value],
         .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
         .has_state = true});
  }
  host_.Hold(++ticket_, {});
  engine_.Commit(ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  engine_.Release({.session = session, .leaving = true}, TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("in its memory and is gone"));
}

TEST_F(OneRound, AWrongWeightIsRefusedAndTheClientsAreLeasedAgain) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  for (const auto& a : reply.training->assignments) {
    part.included.push_back(
        {.attempt = {a.client, a.fence},
         .weight = a.weight + 1,
         .examples = Examples()[a.client.value],
         .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size())});
  }
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
  std::set<ClientId> again;
  for (int i = 0; i < 20; ++i) {
    const fleet::LeaseReply more = Lease(session);
    if (!more.training.has_value()) break;
    for (const auto& a : more.training->assignments) EXPECT_TRUE(again.insert(a.client).second);
  }
  EXPECT_EQ(again.size(), kCohort);
}

}  // namespace
}  // namespace macaw::server
