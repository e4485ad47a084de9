#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "scheduler/policies/policies.h"
#include "server/engine/draw.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"

// From whom the cohort of a round is drawn.
namespace macaw::server {
namespace {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::kCohort;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::TestRun;
using testing::Each;
using testing::HasSubstr;
using testing::Lt;

std::vector<ClientId> DrawnFrom(const Draw& draw) {
  std::vector<ClientId> drawn;
  for (uint32_t round = 1; round <= 50; ++round) {
    const auto seats = draw.Seats(Round(round), ClientStates(false, {}, kPopulation));
    EXPECT_TRUE(seats.ok()) << seats.status();
    for (const Seat& seat : seats.value()) drawn.push_back(seat.entry.client);
  }
  return drawn;
}

// A population whose clients 0 … 19 are named "phone-k" and the others "lab-k".
struct Named {
  explicit Named(const RunPlan& run) {
    fleet::ClientTable table{.rows = Examples()};
    for (uint64_t k = 0; k < kPopulation; ++k)
      table.names.push_back(absl::StrCat(k < 20 ? "a-phone-" : "b-lab-", k));
    roster.Add(NodeWithEverybody("w", 1), table);
    roster.Begin(run.cohort.eligible);
  }
  Roster roster;
};

// A device that says it has four billion rows would be the mean.
TEST(MaxWeight, BoundsWhatAClientCountsAndSaysWhose) {
  RunPlan run = TestRun(1);
  run.cohort.size = kPopulation;
  run.cohort.max_weight = 8;
  std::vector<uint32_t> rows = Examples();
  rows[7] = 4'000'000'000;
  Roster roster;
  roster.Add(NodeWithEverybody("w", 1), {.rows = rows});
  roster.Begin({});
  const auto draw = Draw::Make(run, roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  const auto seats = draw->Seats(Round(1), ClientStates(false, {}, kPopulation));
  ASSERT_TRUE(seats.ok()) << seats.status();
  uint64_t bounded = 0;
  for (const Seat& seat : *seats) {
    const uint32_t own = rows[seat.entry.client.value];
    EXPECT_EQ(seat.weight, std::min(own, 8U));
    EXPECT_EQ(seat.entry.load, own) << "it trains on all of them";
    bounded += own > 8 ? 1 : 0;
  }
  ASSERT_GT(bounded, 1u);
  EXPECT_EQ(draw->BoundedWeights(), absl::StrCat(bounded,
                                                 " clients with up to 4000000000 examples count as "
                                                 "cohort.max_weight = 8"));
  run.cohort.weight = WeightPolicy::kUniform;
  EXPECT_EQ(Draw::Make(run, roster)->BoundedWeights(), "");
  const auto equal = Draw::Make(run, roster)->Seats(Round(1), ClientStates(false, {}, kPopulation));
  EXPECT_EQ(equal->at(0).weight, 1);
  run = TestRun(1);
  EXPECT_EQ(Draw::Make(run, roster)->BoundedWeights(), "");
}

// A seat's steps are the load of its worker and bound what it may report.
TEST(Seats, HaveTheStepsThatTheirWorkerTakesInTheRound) {
  RunPlan run = TestRun(3);
  run.cohort.straggler_fraction = 0.5;
  run.local.steps = 3;
  run.local.qsr = 0.2;
  run.local.lr_schedule = {.kind = "exponential", .gamma = 0.5};  // 4, 16 and 64 steps
  const Named named(run);
  const auto draw = Draw::Make(run, named.roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  for (uint32_t number = 1; number <= 3; ++number) {
    const Round round(number);
    const uint64_t whole = uint64_t{1} << 2 * number;
    bool someone = false;
    const auto seats = draw->Seats(round, ClientStates(false, {}, kPopulation));
    ASSERT_TRUE(seats.ok()) << seats.status();
    for (const Seat& seat : *seats) {
      const LocalConfig work = training::WorkOf(run.cohort, training::RoundLocal(run, round), round,
                                                seat.entry.client, seat.entry.load);
      EXPECT_EQ(seat.entry.steps, work.steps);
      EXPECT_LE(seat.entry.steps, whole);
      someone |= seat.entry.steps == whole;
    }
    EXPECT_TRUE(someone) << "does all of the round's work";
  }
}

// Of 21 rows batch norm makes two batches, as the worker does (EpochBatches::Of).
TEST(Seats, HaveTheStepsOfJoinedBatches) {
  RunPlan run = TestRun(3);
  run.local = {.epochs = 1, .batch_size = 10};
  fleet::ClientTable table{.rows = std::vector<uint32_t>(kPopulation, 21)};
  Roster roster;
  roster.Add(NodeWithEverybody("w", 1), table);
  roster.Begin(run.cohort.eligible);
  for (const bool joins : {false, true}) {
    run.cohort.straggler_fraction = 0.5;
    const auto draw = Draw::Make(run, roster, nullptr, joins);
    ASSERT_TRUE(draw.ok()) << draw.status();
    std::set<uint64_t> steps;
    for (uint32_t round = 1; round <= 20; ++round) {
      const auto seats = draw->Seats(Round(round), ClientStates(false, {}, kPopulation));
      ASSERT_TRUE(seats.ok()) << seats.status();
      for (const Seat& seat : *seats) {
        const uint64_t whole = joins ? 2 : 3;
        const bool slow = training::IsStraggler(run.cohort, Round(round), seat.entry.client);
        EXPECT_TRUE(slow ? seat.entry.steps < whole : seat.entry.steps == whole);
        steps.insert(seat.entry.steps);
      }
    }
    EXPECT_EQ(steps.size(), joins ? 2u : 3u);
  }
}

TEST(NamePattern, StarIsAnyTextAndQuestionMarkOneCharacter) {
  EXPECT_TRUE(NameMatches("phone-7", "phone-*"));
  EXPECT_TRUE(NameMatches("phone-7", "*-7"));
  EXPECT_TRUE(NameMatches("phone-7", "ph*e-?"));
  EXPECT_TRUE(NameMatches("", "*"));
  EXPECT_TRUE(NameMatches("aab", "*ab"));
  EXPECT_FALSE(NameMatches("phone-17", "phone-?"));
  EXPECT_FALSE(NameMatches("phone-7", "phone"));
  EXPECT_FALSE(NameMatches("phone", "phone?"));
  EXPECT_FALSE(NameMatches("", "?"));
}

TEST(NamePattern, QuestionMarkIsACharacterOfSeveralBytes) {
  EXPECT_TRUE(NameMatches("Kiel-ä", "Kiel-?"));
  EXPECT_TRUE(NameMatches("大学", "??"));
  EXPECT_TRUE(NameMatches("Zürich", "*?rich"));
  EXPECT_TRUE(NameMatches("äöü", "*?ü"));
  EXPECT_FALSE(NameMatches("ä", "??"));
  EXPECT_FALSE(NameMatches("äb", "*??b"));
}

TEST(Eligible, OnlyClientsWhoseNamesMatchAreDrawn) {
  RunPlan run = TestRun(1);
  run.cohort.eligible = {"a-phone-*"};
  const Named named(run);
  const auto draw = Draw::Make(run, named.roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  EXPECT_THAT(DrawnFrom(*draw), Each(Lt(ClientId(20))));
}

TEST(Eligible, ClientsWithTooFewRowsAreNotDrawn) {
  RunPlan run = TestRun(1);
  run.cohort.min_rows = 6;
  const Named named(run);
  const auto draw = Draw::Make(run, named.roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  for (const ClientId client : DrawnFrom(*draw)) EXPECT_GE(Examples()[client.value], 6u);
}

TEST(Eligible, ClientsThatCannotTakeAStepAreNotDrawn) {
  RunPlan run = TestRun(1);
  run.local.batch_size = 6;
  run.local.drop_last = true;
  const Named named(run);
  for (const char* sampling : {"uniform", "poisson"}) {
    run.cohort.sampling = sampling;
    const auto draw = Draw::Make(run, named.roster);
    ASSERT_TRUE(draw.ok()) << draw.status();
    for (const ClientId client : DrawnFrom(*draw)) EXPECT_GE(Examples()[client.value], 6u);
  }
  run.local.batch_size = 1000;
  EXPECT_THAT(std::string(Draw::Make(run, named.roster).status().message()),
              testing::AllOf(HasSubstr("local.drop_last"), HasSubstr("0 of 40")));
  // All rows are one batch, so no client is left out for that.
  run.cohort.sampling = "uniform";
  run.local.batch_size = 0;
  run.cohort.min_rows = 1000;
  EXPECT_THAT(std::string(Draw::Make(run, named.roster).status().message()),
              testing::AllOf(HasSubstr("cohort.min_rows"), testing::Not(HasSubstr("drop_last"))));
}

TEST(Eligible, TooFewForACohortAreRefusedWithTheKeys) {
  RunPlan run = TestRun(1);
  run.cohort.eligible = {"a-phone-?"};
  const Named named(run);
  const absl::Status refused = Draw::Make(run, named.roster).status();
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("cohort.eligible"), HasSubstr("10 of 40")));
}

TEST(Eligible, AmongThePresentOnlyThoseAreDrawnAndAmongAllTheSameAsWithoutTheKey) {
  const RunPlan run = TestRun(1);
  const Named named(run);
  absl::StatusOr<Draw> draw = Draw::Make(run, named.roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  const std::vector<ClientId> before = DrawnFrom(*draw);
  const Digest everybody = draw->eligible();
  const std::vector<ClientId> present = {ClientId(3), ClientId(9), ClientId(30), ClientId(40)};
  EXPECT_EQ(draw->Drawable(present), 16u);
  ASSERT_TRUE(draw->Among(present).ok());
  EXPECT_NE(draw->eligible(), everybody);
  for (const ClientId client : DrawnFrom(*draw)) {
    EXPECT_TRUE((client >= ClientId(3) && client < ClientId(9)) || client >= ClientId(30))
        << client;
  }
  ASSERT_TRUE(draw->Among({}).ok());
  EXPECT_EQ(DrawnFrom(*draw), before);
  EXPECT_EQ(draw->eligible(), everybody);
}

// Two owners with twenty clients each. A round asks twelve.
class Present : public testing::Test {
 protected:
  void Start(double within, log::Decisions decisions = {}) {
    RunPlan run = TestRun(1);
    run.cohort.size = cohort_;
    engine_ = std::make_unique<EngineDriver>(EngineOptions{.run = run,
                                                           .lease_timeout = FromSeconds(1000),
                                                           .workers = 2,
                                                           .round = {.present_within = within},
                                                           .decisions = std::move(decisions)},
                                             scheduler_, durable_, /*rounds=*/1, /*phases=*/1);
    engine_->on_record = [this](const log::Record& record) {
      if (const auto* opened = std::get_if<log::RoundOpened>(&record)) opened_ = *opened;
      if (const auto* waiting = std::get_if<log::Waiting>(&record)) waiting_.push_back(*waiting);
    };
    first_ = Join("first", 0);
    now_ += FromSeconds(60);
    second_ = Join("second", 20);
    engine_->RunAll(random_, now_);
  }
  SessionId Join(const std::string& name, uint64_t begin) {
    fleet::ClientTable table;
    for (uint64_t client = begin; client < begin + 20; ++client) {
      table.rows.push_back(Examples()[client]);
      table.names.push_back(absl::StrCat("client ", client));
    }
    fleet::RegisterRequest node = NodeWithEverybody(name, 1);
    node.data_digest = DigestOf(name);
    node.clients = 20;
    node.owner = true;
    const auto reply = engine_->Register(node, table, now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply->session;
  }

  uint64_t cohort_ = kCohort;
  Durable durable_;
  scheduler::PlannedStealingScheduler scheduler_;
  std::unique_ptr<EngineDriver> engine_;
  RandomStream random_{{.seed = 1}};
  TimePoint now_{};
  SessionId first_, second_;
  std::optional<log::RoundOpened> opened_;
  std::vector<log::Waiting> waiting_;
};

TEST_F(Present, OnlyClientsOfNodesThatWereHeardOfLatelyAreDrawnAndTheLogSaysWho) {
  Start(/*within=*/30);
  ASSERT_TRUE(opened_.has_value());
  EXPECT_THAT(opened_->present, testing::ElementsAre(ClientId(20), ClientId(40)));
  for (const log::Member& member : opened_->cohort) EXPECT_GE(member.client, ClientId(20));
}

TEST_F(Present, WhenEverybodyIsThereTheLogDoesNotNameThem) {
  Start(/*within=*/90);
  ASSERT_TRUE(opened_.has_value());
  EXPECT_TRUE(opened_->present.empty());
}

TEST_F(Present, ARoundWaitsForEnoughClientsAndSaysSoOnce) {
  cohort_ = 25;
  Start(/*within=*/30);
  EXPECT_FALSE(opened_.has_value());
  engine_->Heartbeat({.session = second_}, now_);
  engine_->Tick(now_);
  ASSERT_EQ(waiting_.size(), 1u);
  EXPECT_EQ(waiting_[0].present, 20u);
  EXPECT_EQ(waiting_[0].needed, 25u);
  engine_->Heartbeat({.session = first_}, now_);
  engine_->RunAll(random_, now_);
  ASSERT_TRUE(opened_.has_value());
  EXPECT_TRUE(opened_->present.empty());
}

TEST_F(Present, ARunThatRepeatsAnotherDrawsFromThoseThatWerePresentThen) {
  Start(/*within=*/0, {{{Round(1), Phase(0)}, {.present = {ClientId(0), ClientId(15)}}}});
  ASSERT_TRUE(opened_.has_value());
  EXPECT_THAT(opened_->present, testing::ElementsAre(ClientId(0), ClientId(15)));
  for (const log::Member& member : opened_->cohort) EXPECT_LT(member.client, ClientId(15));
}

}  // namespace
}  // namespace macaw::server
