#include <functional>
#include <vector>

#include "tests/server/one_round.h"

namespace macaw::server {
namespace {

TEST_F(OneRound, AClientThatKillsItsWorkerThreeTimesStopsTheRunByName) {
  std::optional<ClientId> poison;
  fleet::RegisterRequest node = Node();
  for (uint64_t incarnation = 1; incarnation <= 4 && !engine_.ended.has_value(); ++incarnation) {
    node.incarnation = incarnation;
    const SessionId session = Join(node);
    if (engine_.ended.has_value()) break;
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
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_EQ(*engine_.ended, RunEnd::kFailed);
  EXPECT_THAT(std::string(engine_.error.message()),
              testing::HasSubstr(absl::StrCat("client ", poison->value)));
}

// Where another node could do its work, the client is given up and the run goes on.
TEST_F(OneRound, ARoundClosesWhenItsLastOpenClientsAreGivenUp) {
  // Whoever has an idle slot gets the next client.
  const auto pull = *scheduler::MakeScheduler({.policy = "longest_first"});
  EngineDriver engine({.run = TestRun(1), .workers = 2}, *pull, durable_, /*rounds=*/1,
                      /*phases=*/1);
  const auto join = [&](const fleet::RegisterRequest& node) {
    const auto reply = engine.Register(node, Table(), TimePoint{});
    EXPECT_TRUE(reply.ok()) << reply.status();
    engine.RunAll(random_, TimePoint{});
    return reply.ok() ? reply->session : SessionId();
  };
  // All that the node can have now.
  const auto lease = [&](SessionId session, uint32_t wanted) {
    std::vector<fleet::TrainingLease> leases;
    for (uint32_t running = 0;; running = 1) {
      engine.Lease(++ticket_, {.session = session, .wanted = wanted, .running = running},
                   Duration{}, TimePoint{});
      const auto reply = engine.leases.find(ticket_);
      if (reply == engine.leases.end() || !reply->second.training.has_value()) return leases;
      leases.push_back(*reply->second.training);
    }
  };
  fleet::RegisterRequest poisoned = Node(), other = Node();
  other.name = "v";
  SessionId session = join(poisoned);
  const SessionId healthy = join(other);
  // One node holds a few clients, the other one trains the rest.
  engine.Lease(++ticket_, {.session = session, .wanted = 2}, Duration{}, TimePoint{});
  ASSERT_TRUE(engine.leases.at(ticket_).training.has_value());
  std::vector<fleet::TrainingLease> held = {*engine.leases.at(ticket_).training};
  fleet::Part part;
  std::vector<ClientId> trained;
  for (const fleet::TrainingLease& one : lease(healthy, 2)) {
    fleet::Part piece = PartOf(one);
    part.round = piece.round, part.broadcast = piece.broadcast;
    for (fleet::ClientRecord& record : piece.included) {
      record.has_state = false;
      trained.push_back(record.attempt.client);
      part.included.push_back(record);
    }
  }
  engine.Expect({trained.begin(), trained.end()});
  engine.Hold(++ticket_, trained);
  engine.Commit(ticket_, {.session = healthy, .commit_id = 1, .part = part}, absl::OkStatus(),
                TimePoint{});
  engine.RunAll(random_, TimePoint{});
  ASSERT_EQ(engine.completed(), 0u);
  // What it holds kills it again and again. Its last registration closes the round.
  for (uint64_t incarnation = 2; incarnation < 20 && engine.completed() == 0; ++incarnation) {
    poisoned.incarnation = incarnation;
    poisoned.died_running.clear();
    for (const fleet::TrainingLease& one : held)
      for (const auto& a : one.assignments) poisoned.died_running.push_back({a.client, a.fence});
    session = join(poisoned);
    ASSERT_FALSE(engine.ended.has_value() && !engine.error.ok()) << engine.error;
    if (engine.completed() == 1) break;
    held = lease(session, 2);
    ASSERT_FALSE(held.empty()) << "nothing is open, and the round is";
  }
  EXPECT_EQ(engine.completed(), 1u);
  EXPECT_EQ(durable_.counted.at(1).size(), trained.size());
}

TEST_F(OneRound, ASessionLeasesWhatItHoldsOfTheOpenPhaseAndNothingElse) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply lease = Lease(session);
  ASSERT_TRUE(lease.training.has_value());
  const fleet::Part part = PartOf(*lease.training);
  EXPECT_TRUE(engine_.Leases(session, part));
  EXPECT_FALSE(engine_.Leases(SessionId(session.value + 1), part));
  fleet::RegisterRequest other = Node();
  other.name = "liar";
  EXPECT_FALSE(engine_.Leases(Join(other), part));
  for (const auto& lie : std::vector<std::function<void(fleet::Part&)>>{
           [](fleet::Part& p) { ++p.included[0].attempt.fence.counter; },
           [](fleet::Part& p) { p.included.push_back(p.included[0]); },
           [](fleet::Part& p) {
             p.left_out.push_back({.attempt = {ClientId(1000), {1, 1}}});
           },
           [](fleet::Part& p) { ++p.round.value; }, [](fleet::Part& p) { ++p.phase.value; }}) {
    fleet::Part lied = part;
    lie(lied);
    EXPECT_FALSE(engine_.Leases(session, lied));
  }
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
  EXPECT_FALSE(engine_.ended.has_value()) << engine_.error;
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

TEST_F(OneRound, ANodeWithAnotherProfileJoinsWhereTheRunMixesThem) {
  fleet::RegisterRequest other = Node();
  other.name = "v";
  other.profile = {"process", "any", "their own 2"};
  Join(Node());
  EXPECT_THAT(std::string(engine_.Register(other, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("server.mixed_profiles"));
  EXPECT_EQ(engine_.profiles().size(), 1u);

  Durable durable;
  EngineDriver mixed({.run = TestRun(1), .workers = 2, .mixed_profiles = true}, scheduler_, durable,
                     /*rounds=*/1, /*phases=*/1);
  for (const fleet::RegisterRequest& node : {Node(), other})
    EXPECT_TRUE(mixed.Register(node, Table(), TimePoint{}).ok());
  EXPECT_THAT(mixed.profiles(), testing::ElementsAre(Node().profile, other.profile));
}

// An odd node that comes first does not decide for all.
TEST_F(OneRound, ANodeWithOtherInstructionsThanThePlansIsRefusedWhoeverCameFirst) {
  Durable durable;
  EngineDriver strict(
      {.run = TestRun(1), .workers = 2, .instruction_set = Node().profile.instruction_set},
      scheduler_, durable, /*rounds=*/1, /*phases=*/1);
  fleet::RegisterRequest odd = Node();
  odd.name = "odd";
  odd.profile.instruction_set = "neon";
  const absl::Status refused = strict.Register(odd, Table(), TimePoint{}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(refused.message(), testing::HasSubstr("server.instruction_set"));
  EXPECT_TRUE(strict.Register(Node(), Table(), TimePoint{}).ok());
}

// Such a run would wait forever, because no node has the rest of the population.
TEST_F(OneRound, APopulationOfAnotherSizeThanTheRunsIsRefusedAtOnce) {
  RunPlan run = TestRun(1);
  run.clients = kPopulation;
  EngineDriver engine({.run = run}, scheduler_, durable_, /*rounds=*/1, /*phases=*/1);
  fleet::RegisterRequest node = Node();
  node.clients = kPopulation - 1;
  const fleet::ClientTable table{.rows = std::vector<uint32_t>(kPopulation - 1, 1)};
  EXPECT_THAT(std::string(engine.Register(node, table, TimePoint{}).status().message()),
              testing::HasSubstr("its data has 39 clients, the run 40"));
}

// Those that it lacks may be any, and then its labels have other numbers.
TEST_F(OneRound, ANodeWhoseDataHasOtherClassesThanTheModelIsRefused) {
  for (const TaskKind task : {TaskKind::kClassification, TaskKind::kBinary}) {
    RunPlan run = TestRun(1);
    run.task = task;
    run.model.classes = task == TaskKind::kBinary ? 1 : 2;
    for (const int64_t classes : {1, 2, 3}) {
      Durable durable;
      EngineDriver engine({.run = run}, scheduler_, durable, /*rounds=*/1, /*phases=*/1);
      fleet::RegisterRequest node = Node();
      node.classes = classes;
      const absl::Status status = engine.Register(node, Table(), TimePoint{}).status();
      EXPECT_EQ(status.ok(), classes == 2) << status;
      if (classes == 1) {
        EXPECT_THAT(std::string(status.message()), testing::HasSubstr("set data.classes = 2"));
      }
    }
  }
}

TEST_F(OneRound, TheChunksOfATestSetCountForEachGroupOfConceptShift) {
  fleet::RegisterRequest node = Node();
  node.central_test_rows = uint64_t{10} << 19;  // half of the chunks that fit
  for (const bool shifts : {false, true}) {
    RunPlan run = TestRun(1);
    if (shifts) run.transform.concept_shift = ConceptShift::kLabelPermutation;
    Durable durable;
    EngineDriver engine({.run = run, .workers = 2}, scheduler_, durable, /*rounds=*/1,
                        /*phases=*/1);
    const absl::Status status = engine.Register(node, Table(), TimePoint{}).status();
    EXPECT_EQ(status.ok(), !shifts) << status;
    if (shifts) {
      EXPECT_THAT(std::string(status.message()),
                  testing::AllOf(testing::HasSubstr("evaluation.chunk"),
                                 testing::HasSubstr("4 groups of data.concept_shift")));
    }
  }
}

TEST_F(OneRound, ACohortLargerThanThePopulationFailsTheRunNotTheProcess) {
  fleet::RegisterRequest node = Node();
  node.clients = 5;
  const auto reply = engine_.Register(node, {.rows = std::vector<uint32_t>(5, 1)}, TimePoint{});
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_THAT(std::string(engine_.error.message()), testing::HasSubstr("cohort.size is 12"));
}

TEST_F(OneRound, AStateInARunWithoutStatesIsRefused) {
  const SessionId session = Join(Node());
  const fleet::Part part = PartOf(*Lease(session).training);
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(engine_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
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
  explicit ThreeRounds(uint32_t rounds = 3, bool gated = false)
      : OneRound({.evaluation_gates = gated}, rounds) {}
  void Step() { ASSERT_TRUE(engine_.RunOne(random_, TimePoint{})); }
  // From the first lease of a round to the request to prepare the next round.
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
        if (fixtures::IsLeftOut(piece.round, record.attempt.client)) {
          part.left_out.push_back({.attempt = record.attempt});
        } else {
          trained.push_back(record.attempt.client);
          part.included.push_back(std::move(record));
        }
      }
    }
    engine_.Hold(++ticket_, trained);
    engine_.Commit(ticket_, {.session = session, .commit_id = ++commits_, .part = part},
                   absl::OkStatus(), TimePoint{});
    Step();  // the part is added
    Step();  // the round is applied
  }
  static std::vector<fleet::EvaluationResult> ResultsOf(const fleet::EvaluationLease& lease) {
    std::vector<fleet::EvaluationResult> results;
    for (const auto& task : lease.tasks) {
      const auto rows = static_cast<double>(task.end - task.begin);
      results.push_back({.task = task, .round = lease.round, .sums = {rows, 0, 0}});
    }
    return results;
  }
  enum class Clients : uint8_t { kTrained, kLeftOut };
  // A whole round, including its evaluation.
  void WholeRound(SessionId session, Clients clients) {
    engine_.RunAll(random_, TimePoint{});
    running_ = 0;
    std::set<ClientId> trained;
    engine_.Expect(std::set<ClientId>{});
    for (bool last = false; !last;) {
      const fleet::LeaseReply lease = Lease(session);
      ASSERT_TRUE(lease.training.has_value() || lease.evaluation.has_value());
      fleet::CommitRequest request{.session = session, .commit_id = ++commits_};
      if (lease.evaluation.has_value()) {
        request.evaluations = ResultsOf(*lease.evaluation);
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
      engine_.Expect(trained);
      engine_.Hold(++ticket_, std::move(part));
      engine_.Commit(ticket_, request, absl::OkStatus(), TimePoint{});
      engine_.RunAll(random_, TimePoint{});
      EXPECT_EQ(engine_.commits.at(ticket_).verdict, fleet::Verdict::kAccepted);
      running_ = 0;
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
  EXPECT_FALSE(engine_.leases.contains(ticket_)) << "alone, it would leave slots idle at its end";
  Step();
  ASSERT_TRUE(engine_.leases.contains(ticket_));
  EXPECT_TRUE(engine_.leases.at(ticket_).training.has_value());
  EXPECT_TRUE(engine_.leases.at(ticket_).evaluation.has_value());
}

TEST_F(ThreeRounds, ARoundThatLosesEveryClientMovesOn) {
  const SessionId session = Join(Node());
  WholeRound(session, Clients::kLeftOut);
  EXPECT_FALSE(engine_.ended.has_value()) << engine_.error;
  EXPECT_EQ(engine_.completed(), 1u);
  WholeRound(session, Clients::kTrained);
  EXPECT_EQ(engine_.completed(), 2u);
}

class GatedRounds : public ThreeRounds {
 protected:
  GatedRounds() : ThreeRounds(4, /*gated=*/true) {}
};

TEST_F(GatedRounds, TheNextRoundWaitsForTheJudgementWhichMayEndTheRun) {
  std::vector<log::Evaluated> evaluated;
  engine_.on_record = [&](const log::Record& record) {
    if (const auto* one = std::get_if<log::Evaluated>(&record)) evaluated.push_back(*one);
  };
  const SessionId session = Join(Node());
  WholeRound(session, Clients::kTrained);
  WholeRound(session, Clients::kTrained);  // to be evaluated
  running_ = 0;
  const fleet::LeaseReply lease = Lease(session);
  EXPECT_FALSE(lease.training.has_value());
  ASSERT_TRUE(lease.evaluation.has_value());
  engine_.JudgeLater();
  engine_.Stop("good enough");
  engine_.Commit(
      ++ticket_,
      {.session = session, .commit_id = ++commits_, .evaluations = ResultsOf(*lease.evaluation)},
      absl::OkStatus(), TimePoint{});
  EXPECT_FALSE(engine_.ended.has_value());
  EXPECT_TRUE(evaluated.empty());
  Step();  // the evaluation is judged
  EXPECT_EQ(engine_.ended, RunEnd::kStopped);
  EXPECT_EQ(engine_.completed(), 2u);
  ASSERT_EQ(evaluated.size(), 1u);
  EXPECT_EQ(evaluated[0].round, Round(2));
  EXPECT_EQ(evaluated[0].stop, "good enough");
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
  ASSERT_FALSE(engine_.ended.has_value()) << engine_.error;
  WholeRound(session, Clients::kLeftOut);
  ASSERT_TRUE(engine_.ended.has_value());
  EXPECT_EQ(engine_.completed(), 7u);
  EXPECT_THAT(std::string(engine_.error.message()), testing::HasSubstr("round 8"));
  EXPECT_THAT(std::string(engine_.error.message()), testing::HasSubstr("no rows"));
}

TEST_F(OneRound, AWrongWeightIsRefusedAndTheClientsAreLeasedAgain) {
  const SessionId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  fleet::Part part = PartOf(*reply.training);
  for (fleet::ClientRecord& record : part.included) {
    record.weight += 1;
    record.has_state = false;
  }
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(engine_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
  running_ = 0;
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
