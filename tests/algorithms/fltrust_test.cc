#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Parameters Root(int64_t client) { return {{"root", client}}; }

TEST(FlTrust, ScoresByHand) {
  // The root's is (2, 0). (8, 0): cos 1, scaled to (2, 0). (1, 1): cos 1/√2, scaled to (√2, √2).
  // (−5, 1) and (0, 3) have no score.
  const ServerRound all{.updates = {{2, 0}, {8, 0}, {1, 1}, {-5, 1}, {0, 3}}};
  const double half = std::sqrt(.5), total = 1 + half;
  const auto outcome = all.Of("fltrust");
  EXPECT_LT(
      Distance(outcome.model, {(2 + half * std::sqrt(2)) / total, half * std::sqrt(2) / total}),
      1e-14);
  EXPECT_EQ(outcome.metrics.at("trusted"), 2);
}

TEST(FlTrust, TakesTheRootOfItsKey) {
  const ServerRound all{.updates = {{1, 0}, {0, 1}, {0, 4}}};
  EXPECT_LT(Distance(all.Of("fltrust", Root(2)).model, {0, 4}), 1e-14);
  EXPECT_LT(Distance(all.Of("fltrust", Root(1)).model, {0, 1}), 1e-14);
}

TEST(FlTrust, LeavesTheModelWithoutTheRootOrAnybodyToTrust) {
  const ServerRound opposed{.updates = {{1, 0}, {-1, 0}, {0, 0}}};
  EXPECT_EQ(opposed.Of("fltrust").model, (Numbers{0, 0}));
  EXPECT_EQ(opposed.Of("fltrust").metrics.at("trusted"), 0);
  const ServerRound absent{.updates = {{1, 0}, {1, 0}}};
  EXPECT_EQ(absent.Of("fltrust", Root(7)).model, (Numbers{0, 0}));
  EXPECT_EQ(absent.Of("fltrust", Root(7)).metrics.at("trusted"), 0);
  const ServerRound still{.updates = {{0, 0}, {1, 0}}};
  EXPECT_EQ(still.Of("fltrust").model, (Numbers{0, 0}));
}

TEST(FlTrust, BelievesTheRootsStatisticsAlone) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {1}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t statistic = layout->Find("running_mean")->offset;
  const auto setup = SetupOfRule("fltrust", {}, layout);
  const auto server = *Builtin("fltrust").server(setup, FlatVector(layout));
  aggregation::Aggregate aggregate;
  aggregate.channels.emplace_back().name = "delta";
  for (size_t k = 0; k < 4; ++k) {
    FlatVector update(layout);
    update.As<double>()[layout->Find("weight")->offset] = 1;
    update.As<double>()[statistic] = k == 0 ? 7 : -1e9;
    aggregate.channels[0].collected.emplace_back(ClientId(k), std::move(update));
  }
  ASSERT_TRUE(server->Apply({.round = Round(1)}, std::move(aggregate)).ok());
  EXPECT_DOUBLE_EQ(NumbersOf(server->Model())[0], 1);
  EXPECT_EQ(server->Model().As<double>()[statistic], 7);
}

// More than half of them: no rule without a root can.
TEST(FlTrust, WithstandsAMajority) {
  constexpr uint64_t kClients = 20;
  std::vector<TestPopulationClient> population;
  for (uint64_t k = 0; k < kClients; ++k) {
    const double shift = .02 * (static_cast<double>(k) - 9.5);
    population.push_back({std::make_shared<SquaredDistance>(Numbers{3 + shift, -2 + shift}), 1});
  }
  const AttackConfig attack = Of("sign-flip", .7, 4);
  const HostileClients hostile(attack, kClients, kSeed);
  int64_t root = 0;
  while (hostile.Contains(ClientId(static_cast<uint64_t>(root)))) ++root;
  const auto error = [&](const std::string& rule, const Parameters& parameters) {
    RoundLoop loop(Under(attack, rule, kClients), population,
                   {.parameters = parameters, .cohort = {.size = kClients}});
    const absl::Status status = loop.Rounds(40);
    EXPECT_TRUE(status.ok() || absl::IsOutOfRange(status)) << status;
    return status.ok() ? Distance(loop.Model(), {3, -2}) : INFINITY;
  };
  EXPECT_LT(error("fltrust", Root(root)), .3);
  EXPECT_GT(error("median", {}), 2);
}

TEST(FlTrust, IsRefusedWhereTheRootMayBeMissing) {
  const Description rule = Builtin("fltrust");
  const auto refusal = [&](CohortConfig cohort, uint64_t clients, int64_t root = 0) {
    auto setup = SetupOfRule("fltrust", Root(root), Plain(2, DType::kF32));
    setup.cohort = std::move(cohort);
    setup.clients = clients;
    return std::string(MakeSchema(rule, setup).status().message());
  };
  EXPECT_EQ(refusal({.size = 10}, 10), "");
  EXPECT_EQ(refusal({.size = 10}, 10, 9), "");
  EXPECT_THAT(refusal({.size = 10}, 10, 10),
              AllOf(HasSubstr("root = 10"), HasSubstr("10 clients")));
  EXPECT_THAT(refusal({.size = 9}, 10), AllOf(HasSubstr("cohort.size = 9"), HasSubstr("root")));
  EXPECT_THAT(refusal({.size = 10}, 0), HasSubstr("run.clients"));
  for (const char* sampling : {"proportional", "poisson", "available"})
    EXPECT_THAT(refusal({.size = 10, .sampling = sampling}, 10), HasSubstr(sampling));
  CohortConfig dropping{.size = 10};
  dropping.straggler_policy = "drop";
  dropping.straggler_fraction = .1;
  EXPECT_THAT(refusal(dropping, 10), HasSubstr("straggler_policy"));
  EXPECT_THAT(refusal({.size = 1}, 1), HasSubstr("2 clients"));
}

TEST(FlTrust, RefusesAHostileRoot) {
  const AttackConfig attack = Of("sign-flip", .5);
  const HostileClients hostile(attack, 10, kSeed);
  const Description rule = Under(attack, "fltrust", 10);
  for (int64_t root = 0; root < 10; ++root) {
    auto setup = SetupOfRule("fltrust", Root(root), Plain(2, DType::kF32));
    setup.cohort.size = setup.clients = 10;
    const absl::Status made = MakeSchema(rule, setup).status();
    const bool refused = hostile.Contains(ClientId(static_cast<uint64_t>(root)));
    EXPECT_EQ(!made.ok(), refused) << root;
    if (refused) {
      EXPECT_THAT(std::string(made.message()), HasSubstr("algorithm.fltrust.root"));
    }
  }
}

}  // namespace
}  // namespace macaw::algorithms
