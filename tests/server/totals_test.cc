#include "server/engine/totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

// What a fleet's plan says of its clients, against those that registered.
namespace macaw::server {
namespace {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::TestRun;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr TotalsUsed kNone, kN{.clients = true}, kW{.weight = true};

uint64_t RowsOfAll(uint32_t least = 1) {
  const std::vector<uint32_t> rows = Examples();
  return std::accumulate(rows.begin(), rows.end(), uint64_t{0},
                         [&](uint64_t sum, uint32_t n) { return n < least ? sum : sum + n; });
}

RunPlan Planned(uint64_t clients, uint64_t examples) {
  RunPlan run = TestRun(1);
  run.algorithm.name = "scaffold";
  run.clients = kPopulation;
  run.train_clients = clients;
  run.train_examples = examples;
  return run;
}

absl::StatusOr<std::string> Compared(const RunPlan& run, TotalsUsed used) {
  Roster roster;
  fleet::ClientTable table{.rows = Examples()};
  for (uint64_t k = 0; k < kPopulation; ++k) {
    table.names.push_back(absl::StrCat(k < 20 ? "a-phone-" : "b-lab-", k));
    table.tokens.push_back(10 * table.rows[k]);
  }
  roster.Add(NodeWithEverybody("w", 1), table);
  roster.Begin(run.cohort.eligible);
  const auto draw = Draw::Make(run, roster);
  EXPECT_TRUE(draw.ok()) << draw.status();
  return CompareTotals(run, used, *draw, roster);
}

std::string Refusal(const RunPlan& run, TotalsUsed used) {
  return std::string(Compared(run, used).status().message());
}

TEST(CompareTotals, SaysNothingWhereThePlanIsThatOfTheRegisteredClients) {
  for (const TotalsUsed used : {kNone, kN, kW}) {
    const auto compared = Compared(Planned(kPopulation, RowsOfAll()), used);
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_THAT(*compared, IsEmpty());
  }
}

TEST(CompareTotals, RefusesWhatTheRunComputesWithAndSaysWhatToWrite) {
  EXPECT_THAT(Refusal(Planned(kPopulation, 10 * RowsOfAll()), kW),
              AllOf(HasSubstr("scaffold computes with it"),
                    HasSubstr(absl::StrCat("run.train_examples = ", RowsOfAll()))));
  EXPECT_THAT(Refusal(Planned(kPopulation, 0), kW), HasSubstr("run.train_examples"));
  EXPECT_THAT(Refusal(Planned(30, RowsOfAll()), kN),
              HasSubstr(absl::StrCat("run.train_clients = ", kPopulation)));
  RunPlan poisson = Planned(kPopulation, 1);
  poisson.cohort.sampling = "poisson";
  EXPECT_THAT(Refusal(poisson, {.clients = true, .weight = true}), HasSubstr("poisson"));
}

TEST(CompareTotals, WarnsOfWhatTheRunDoesNotComputeWith) {
  const auto compared = Compared(Planned(30, 7), kNone);
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_THAT(*compared,
              AllOf(HasSubstr("run.train_clients is 30"), HasSubstr("run.train_examples is 7"),
                    HasSubstr("nothing in this run depends on it")));
  EXPECT_THAT(*Compared(Planned(kPopulation, 7), kN),
              AllOf(HasSubstr("run.train_examples"), Not(HasSubstr("run.train_clients"))));
  EXPECT_THAT(*Compared(Planned(kPopulation, 0), kN), IsEmpty()) << "the plan does not say it";
}

TEST(CompareTotals, CountEachClientUpToTheBoundOfItsWeight) {
  const std::vector<uint32_t> rows = Examples();
  uint64_t bounded = 0;
  for (const uint32_t own : rows) bounded += std::min(own, 5U);
  ASSERT_LT(bounded, RowsOfAll());
  RunPlan run = Planned(kPopulation, bounded);
  run.cohort.max_weight = 5;
  EXPECT_THAT(*Compared(run, kW), IsEmpty());
  run.train_examples = RowsOfAll();
  EXPECT_THAT(Refusal(run, kW), HasSubstr(absl::StrCat("run.train_examples = ", bounded)));
  run.cohort.weight = WeightPolicy::kTokens;
  run.train_tokens = 5 * kPopulation;  // each client has ten tokens a row
  EXPECT_THAT(*Compared(run, kW), IsEmpty());
}

TEST(CompareTotals, AreThoseOfTheWeight) {
  RunPlan run = Planned(kPopulation, RowsOfAll());
  run.cohort.weight = WeightPolicy::kTokens;
  run.train_tokens = 10 * RowsOfAll();
  EXPECT_THAT(*Compared(run, kW), IsEmpty());
  run.train_tokens = 1;
  EXPECT_THAT(Refusal(run, kW), HasSubstr(absl::StrCat("run.train_tokens = ", 10 * RowsOfAll())));
  run.cohort.weight = WeightPolicy::kUniform;
  run.train_examples = 1;
  EXPECT_THAT(*Compared(run, kW), IsEmpty()) << "equal weights add up to N";
  run.train_clients = 30;
  EXPECT_THAT(Refusal(run, kW), HasSubstr("run.train_clients"));
}

TEST(CompareTotals, AreOverTheClientsThatCanBeDrawn) {
  const std::vector<uint32_t> rows = Examples();
  const auto many = [](uint32_t n) { return n >= 6; };
  RunPlan run = Planned(static_cast<uint64_t>(std::ranges::count_if(rows, many)), RowsOfAll(6));
  run.cohort.min_rows = 6;
  EXPECT_THAT(*Compared(run, {.clients = true, .weight = true}), IsEmpty());
  run.cohort.min_rows.reset();
  EXPECT_THAT(Refusal(run, kN),
              AllOf(HasSubstr("run.train_clients = 40"), Not(HasSubstr("drop_last"))));
  run.local.drop_last = true;  // clients with a batch of 10 rows
  EXPECT_THAT(Refusal(run, kN), HasSubstr("local.drop_last do not leave out"));
  run = Planned(20, std::accumulate(rows.begin(), rows.begin() + 20, uint64_t{0}));
  run.cohort.eligible = {"a-phone-*"};
  EXPECT_THAT(*Compared(run, {.clients = true, .weight = true}), IsEmpty());
}

TEST(CompareTotals, EndsTheRunBeforeItsFirstRound) {
  for (const TotalsUsed used : {kNone, kW}) {
    Durable durable;
    const scheduler::PlannedStealingScheduler scheduler;
    EngineDriver engine(
        EngineOptions{.run = Planned(kPopulation, 10 * RowsOfAll()), .totals = used}, scheduler,
        durable, /*rounds=*/1, /*phases=*/1);
    const auto joined =
        engine.Register(NodeWithEverybody("w", 1), {.rows = Examples()}, TimePoint());
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(engine.ended.has_value(), used.weight);
    EXPECT_EQ(absl::IsFailedPrecondition(engine.error), used.weight) << engine.error;
  }
}

// A rule may need certain clients, which is known once the nodes have told what they have.
TEST(CheckRows, EndsTheRunBeforeItsFirstRound) {
  for (const bool refuses : {false, true}) {
    Durable durable;
    const scheduler::PlannedStealingScheduler scheduler;
    std::vector<uint32_t> asked;
    EngineOptions options{.run = Planned(kPopulation, RowsOfAll())};
    options.check_rows = [&](std::span<const uint32_t> rows) {
      asked.assign(rows.begin(), rows.end());
      return refuses ? absl::InvalidArgumentError("client 3 has no rows") : absl::OkStatus();
    };
    EngineDriver engine(std::move(options), scheduler, durable, /*rounds=*/1, /*phases=*/1);
    const auto joined =
        engine.Register(NodeWithEverybody("w", 1), {.rows = Examples()}, TimePoint());
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(asked, Examples());
    EXPECT_EQ(engine.ended.has_value(), refuses);
    EXPECT_EQ(absl::IsInvalidArgument(engine.error), refuses) << engine.error;
  }
}

// evaluation.unlearn names clients by number, which a fleet's have once all are there.
TEST(UnlearnedClients, ThatDoNotExistEndTheRunBeforeItsFirstRound) {
  for (const uint64_t client : {kPopulation - 1, kPopulation}) {
    Durable durable;
    const scheduler::PlannedStealingScheduler scheduler;
    RunPlan run = TestRun(1);
    run.evaluation.unlearn = {3, client};
    EngineDriver engine(EngineOptions{.run = run}, scheduler, durable, /*rounds=*/1, /*phases=*/1);
    const auto joined =
        engine.Register(NodeWithEverybody("w", 1), {.rows = Examples()}, TimePoint());
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(engine.ended.has_value(), client == kPopulation);
    if (client < kPopulation) continue;
    EXPECT_TRUE(absl::IsInvalidArgument(engine.error)) << engine.error;
    EXPECT_THAT(
        std::string(engine.error.message()),
        AllOf(HasSubstr("evaluation.unlearn"), HasSubstr("client 40"), HasSubstr("0 to 39")));
  }
}

// A fleet's plan does not say whether a node brings a test set.
TEST(LeftOutClients, NeedATestSetForAllOfANewRun) {
  for (const uint64_t test_rows : {0, 100}) {
    for (const uint32_t completed : {0, 1}) {
      Durable durable;
      const scheduler::PlannedStealingScheduler scheduler;
      RunPlan run = TestRun(2);
      run.evaluation.leave_one_out = 1;
      EngineDriver engine(EngineOptions{.run = run, .completed = completed}, scheduler, durable,
                          /*rounds=*/2, /*phases=*/1);
      fleet::RegisterRequest node = NodeWithEverybody("w", 1);
      node.central_test_rows = test_rows;
      if (test_rows == 0) node.central_test_digest = {};
      const auto joined = engine.Register(node, {.rows = Examples()}, TimePoint());
      ASSERT_TRUE(joined.ok()) << joined.status();
      const bool refused = test_rows == 0 && completed == 0;
      EXPECT_EQ(engine.ended.has_value(), refused) << engine.error;
      if (!refused) continue;
      EXPECT_TRUE(absl::IsInvalidArgument(engine.error)) << engine.error;
      EXPECT_THAT(std::string(engine.error.message()),
                  AllOf(HasSubstr("evaluation.leave_one_out"), HasSubstr("server.workers")));
    }
  }
}

}  // namespace
}  // namespace macaw::server
