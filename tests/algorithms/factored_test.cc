#include "algorithms/around/factored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/around/compressed.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/bowls.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

constexpr size_t kMatrixSize = 36 + 6;  // a matrix of 6 × 6 and a bias

LayoutPtr MatrixLayout(DType dtype = DType::kF64) {
  return *ParameterLayout::Make(
      {{.name = "weight", .shape = {6, 6}}, {.name = "bias", .shape = {6}}}, dtype);
}

Bowls SomeBowls(size_t clients = 8) { return {clients, kMatrixSize, /*seed=*/77, /*spread=*/1}; }

RoundLoop Loop(const Description& rule, const Bowls& bowls, uint64_t cohort, double lr = 0.2,
               DType dtype = DType::kF64) {
  CohortConfig drawn;
  drawn.size = cohort;
  drawn.weight = WeightPolicy::kUniform;
  return {rule,
          bowls.population,
          {.steps = 1,
           .dtype = dtype,
           .start = Numbers(kMatrixSize),
           .lr = lr,
           .layout = MatrixLayout(dtype),
           .cohort = drawn}};
}

Description Acp(const char* rule, const char* rank = "acpsgd 1", std::string feedback = "auto") {
  return Factored(Builtin(rule), {.codec = {rank}, .feedback = std::move(feedback)});
}

TEST(Factored, SendsAFactorAndTheRest) {
  const Bowls bowls = SomeBowls();
  const RoundLoop loop = Loop(Acp("fedavg"), bowls, 8);
  ASSERT_EQ(loop.schema().up.size(), 2u);
  EXPECT_EQ(loop.schema().up[0].name, "delta_factor");
  EXPECT_EQ(loop.schema().up[0].layout->count(), 6u);
  EXPECT_EQ(loop.schema().up[1].name, "delta_rest");
  EXPECT_EQ(loop.schema().up[1].layout->count(), 6u);
  EXPECT_EQ(loop.schema().down[1].name, "delta_basis");
  EXPECT_TRUE(loop.schema().down[1].coded) << "so its zeros are not sent";
  ASSERT_EQ(loop.schema().state.size(), 1u) << "all take part: what is left out is fed back";
  EXPECT_TRUE(Loop(Acp("fedavg"), bowls, 2).schema().state.empty());
}

// With all clients the local residual gives back what a factor of rank 1 leaves out.
TEST(Factored, EndsAtTheOptimumWithAllClients) {
  const Bowls bowls = SomeBowls();
  RoundLoop fed_back = Loop(Acp("fedavg"), bowls, 8);
  ASSERT_TRUE(fed_back.Rounds(1500).ok());
  EXPECT_LT(Distance(fed_back.Model(), bowls.optimum), 1e-6);
  EXPECT_LE(fed_back.metrics().at("update_error"), 1);
  RoundLoop alone = Loop(Acp("fedavg", "acpsgd 1", "none"), bowls, 8);
  ASSERT_TRUE(alone.Rounds(1500).ok());
  EXPECT_LT(Distance(alone.Model(), bowls.optimum), 1e-6)
      << "the mean of the factors is the factor of the mean";
}

// A residual holds back parts of an update; it must not grow with the rounds, as one with the
// common mean subtracted would.
TEST(Factored, AResidualStaysBounded) {
  const Bowls bowls = SomeBowls();
  RoundLoop loop = Loop(Acp("fedavg"), bowls, 8);
  const auto residual = [&] {
    double most = 0;
    for (size_t i = 0; i < 8; ++i)
      most = std::max(most, Distance(loop.State(i, 0), Numbers(kMatrixSize)));
    return most;
  };
  ASSERT_TRUE(loop.Rounds(500).ok());
  const double early = residual();
  ASSERT_TRUE(loop.Rounds(2000).ok());
  EXPECT_LT(residual(), 2 * early);
}

RoundLoop WithDecay(const char* codec, double decay, const Bowls& bowls) {
  const UpdateConfig update{.codec = {codec}, .feedback = "residual", .residual_decay = decay};
  return Loop(Factored(Builtin("fedavg"), update), bowls, 2);
}

// An odd round of acpsgd is linear in the update and the residual, of which a part stays.
TEST(Factored, AResidualDecaysWithTheRoundsThatItsClientWasAway) {
  const Bowls bowls = SomeBowls(2);
  std::vector<Numbers> left;
  for (const double decay : {1.0, 0.5, 0.25}) {
    RoundLoop loop = WithDecay("acpsgd 1", decay, bowls);
    ASSERT_TRUE(loop.Rounds(1).ok() && loop.Round({1}).ok() && loop.Round({0}).ok());
    left.push_back(loop.State(0, 0));
    ASSERT_EQ(loop.schema().state.size(), decay < 1 ? 2u : 1u);
    if (decay == 1) continue;
    EXPECT_EQ(loop.State(0, 1), Numbers({3}));
  }
  double most = 0;
  for (size_t i = 0; i < kMatrixSize; ++i) {
    EXPECT_NEAR(left[0][i] - left[1][i], 2 * (left[1][i] - left[2][i]), 1e-12);
    most = std::max(most, std::abs(left[0][i] - left[1][i]));
  }
  EXPECT_GT(most, 1e-3);
}

TEST(Factored, ADecayChangesNothingOfClientsThatAlwaysCome) {
  const Bowls bowls = SomeBowls(2);
  for (const char* codec : {"acpsgd 1", "powersgd 1"}) {
    RoundLoop plain = WithDecay(codec, 1, bowls), decays = WithDecay(codec, 0.1, bowls);
    ASSERT_TRUE(plain.Rounds(4).ok() && decays.Rounds(4).ok());
    EXPECT_EQ(plain.ModelDigest(), decays.ModelDigest()) << codec;
    EXPECT_EQ(decays.State(0, 1), Numbers({4}));
    for (RoundLoop* const one : {&plain, &decays})
      ASSERT_TRUE(one->Round({0}).ok() && one->Round({1}).ok());
    EXPECT_NE(plain.ModelDigest(), decays.ModelDigest()) << codec;
  }
}

TEST(Factored, WithoutFeedbackDrawnClientsAreAsGoodAsDense) {
  const Bowls bowls = SomeBowls();
  const auto distance = [&](const Description& rule) {
    RoundLoop loop = Loop(rule, bowls, 2, 0.05);
    double sum = 0;
    EXPECT_TRUE(loop.SampledRounds(600, 2).ok());
    for (int i = 0; i < 300; ++i) {
      EXPECT_TRUE(loop.SampledRounds(1, 2).ok());
      sum += Distance(loop.Model(), bowls.optimum) / 300;
    }
    return sum;
  };
  EXPECT_LT(distance(Acp("fedavg")), 1.5 * distance(Builtin("fedavg")));
}

// A lost client keeps its residual, and a round of nobody keeps the bases.
TEST(Factored, LostClientsChangeNothingOfTheirs) {
  const Bowls bowls = SomeBowls();
  RoundLoop loop = Loop(Acp("fedavg"), bowls, 8);
  ASSERT_TRUE(loop.Rounds(3).ok());
  const Numbers before = loop.State(2, 0);
  const Numbers p = loop.Saved("update_p_delta"), model = loop.Model();
  ASSERT_TRUE(loop.Round({2, 3}, {2, 3}).ok());
  EXPECT_EQ(loop.State(2, 0), before);
  EXPECT_EQ(loop.Saved("update_p_delta"), p);
  EXPECT_EQ(loop.Model(), model);
  ASSERT_TRUE(loop.Rounds(1500).ok());
  EXPECT_LT(Distance(loop.Model(), bowls.optimum), 1e-6);
}

TEST(Factored, GoesOnAfterAResumeWithTheSameBytes) {
  const Bowls bowls = SomeBowls();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop whole = Loop(Acp("fedavg", "acpsgd 2"), bowls, 8, 0.2, dtype);
    RoundLoop half = Loop(Acp("fedavg", "acpsgd 2"), bowls, 8, 0.2, dtype);
    RoundLoop other = Loop(Acp("fedavg", "acpsgd 2"), bowls, 8, 0.2, dtype);
    ASSERT_TRUE(whole.Rounds(9).ok());
    ASSERT_TRUE(half.Rounds(5).ok());
    ASSERT_TRUE(other.ResumeFrom(half).ok());
    ASSERT_TRUE(other.Rounds(4).ok());
    EXPECT_EQ(other.ModelDigest(), whole.ModelDigest());
  }
}

TEST(Factored, ASavedStateOfAnotherRankIsRefused) {
  const Bowls bowls = SomeBowls();
  RoundLoop one = Loop(Acp("fedavg"), bowls, 8), two = Loop(Acp("fedavg", "acpsgd 2"), bowls, 8);
  EXPECT_THAT(std::string(one.server().Load(two.server().Save()).message()),
              HasSubstr("update_p_delta"));
}

// SCAFFOLD's c_i follow what the server decoded, so c stays their mean.
TEST(Factored, AStateThatFollowsMirrorsWhatWasDecoded) {
  const Bowls bowls = SomeBowls();
  RoundLoop loop = Loop(Acp("scaffold", "acpsgd 1", "none"), bowls, 8);
  ASSERT_TRUE(loop.Rounds(40).ok());
  Numbers mean(kMatrixSize);
  for (size_t i = 0; i < 8; ++i) {
    const Numbers control = loop.State(i, 0);
    for (size_t j = 0; j < kMatrixSize; ++j) mean[j] += control[j] / 8;
  }
  EXPECT_LT(Distance(mean, loop.Saved("control")), 1e-9);
}

TEST(Factored, StartsFromTheRunsSeed) {
  const Bowls bowls = SomeBowls();
  const algorithms::Setup setup = Loop(Acp("fedavg"), bowls, 8).setup();
  const auto start = [&](uint64_t seed) {
    algorithms::Setup with = setup;
    with.seed = seed;
    const auto server = *Acp("fedavg").server(with, FlatVector(MatrixLayout()));
    return DigestOfValues(server->Save().vectors.at("update_q_delta").view());
  };
  EXPECT_EQ(start(1), start(1));
  EXPECT_NE(start(1), start(2));
}

Description Power(const char* rule, const char* rank = "powersgd 1",
                  std::string feedback = "auto") {
  return Factored(Builtin(rule), {.codec = {rank}, .feedback = std::move(feedback)});
}

TEST(PowerSgd, HasASecondPhaseThatTrainsNobody) {
  const Bowls bowls = SomeBowls();
  RoundLoop loop = Loop(Power("fedavg"), bowls, 8);
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.phases(), 2);
  EXPECT_EQ(loop.schema().up.size(), 2u);
  EXPECT_LE(loop.metrics().at("update_error"), 1);
}

TEST(PowerSgd, EndsAtTheOptimumWithAllClients) {
  const Bowls bowls = SomeBowls();
  for (const char* feedback : {"residual", "none"}) {
    RoundLoop loop = Loop(Power("fedavg", "powersgd 1", feedback), bowls, 8);
    ASSERT_TRUE(loop.Rounds(1500).ok());
    EXPECT_LT(Distance(loop.Model(), bowls.optimum), 1e-6) << feedback;
  }
}

// With a rank of the mean update, the first round's P̂ spans it: the model moves as FedAvg's.
TEST(PowerSgd, AnUpdateOfItsRankIsExact) {
  Bowls bowls = SomeBowls(1);
  Numbers b(kMatrixSize);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 6; ++j)
      b[i * 6 + j] =
          static_cast<double>(i + 1) * static_cast<double>(j * j) - 3.0 * static_cast<double>(j);
    b[36 + i] = static_cast<double>(i);
  }
  bowls.population = {{std::make_shared<SquaredDistance>(b), 1}};
  RoundLoop factored = Loop(Power("fedavg", "powersgd 2"), bowls, 1);
  RoundLoop dense = Loop(Builtin("fedavg"), bowls, 1);
  ASSERT_TRUE(factored.Rounds(5).ok());
  ASSERT_TRUE(dense.Rounds(5).ok());
  EXPECT_LT(Distance(factored.Model(), dense.Model()), 1e-9);
}

// The bias was sent in the first phase: it is no part of what is left.
TEST(PowerSgd, AClientKeepsMatricesAloneBetweenThePhases) {
  const Bowls bowls = SomeBowls();
  RoundLoop loop = Loop(Power("fedavg"), bowls, 8);
  ASSERT_TRUE(loop.Rounds(1).ok());
  for (size_t client = 0; client < 8; ++client) {
    const Numbers kept = loop.State(client, 0);
    for (size_t i = 36; i < kMatrixSize; ++i) EXPECT_EQ(kept[i], 0) << i;
  }
}

TEST(PowerSgd, GoesOnAfterAResumeWithTheSameBytes) {
  const Bowls bowls = SomeBowls();
  RoundLoop whole = Loop(Power("fedavg", "powersgd 2"), bowls, 8, 0.2, DType::kF32);
  RoundLoop half = Loop(Power("fedavg", "powersgd 2"), bowls, 8, 0.2, DType::kF32);
  RoundLoop other = Loop(Power("fedavg", "powersgd 2"), bowls, 8, 0.2, DType::kF32);
  ASSERT_TRUE(whole.Rounds(9).ok());
  ASSERT_TRUE(half.Rounds(5).ok());
  ASSERT_TRUE(other.ResumeFrom(half).ok());
  ASSERT_TRUE(other.Rounds(4).ok());
  EXPECT_EQ(other.ModelDigest(), whole.ModelDigest());
}

TEST(PowerSgd, RefusesRulesWhoseStateMirrorsWhatIsCounted) {
  const Bowls bowls = SomeBowls();
  const algorithms::Setup setup = Loop(Builtin("scaffold"), bowls, 8).setup();
  EXPECT_THAT(std::string(Power("scaffold").check(setup).message()), HasSubstr("acpsgd"));
  EXPECT_THAT(std::string(Power("mime").check(Loop(Builtin("mime"), bowls, 8).setup()).message()),
              HasSubstr("phases"));
}

std::string Refusal(const Description& rule, const Setup& setup) {
  return std::string(rule.check(setup).message());
}

TEST(Factored, RefusesWhatItIsNotFor) {
  const Bowls bowls = SomeBowls();
  const algorithms::Setup setup = Loop(Acp("fedavg"), bowls, 8).setup();
  const auto acp = [](std::vector<std::string> codec, std::string feedback = "auto") {
    return Factored(Builtin("fedavg"),
                    {.codec = std::move(codec), .feedback = std::move(feedback)});
  };
  EXPECT_THAT(Refusal(acp({"acpsgd 0"}), setup), HasSubstr("the rank"));
  EXPECT_THAT(Refusal(acp({"acpsgd 4"}), setup), HasSubstr("smaller rank"));
  EXPECT_THAT(Refusal(acp({"acpsgd 1", "bits 8"}), setup), HasSubstr("stand alone"));
  EXPECT_THAT(Refusal(acp({"acpsgd 1"}, "ef21"), setup), HasSubstr("ef21"));
  const algorithms::Setup krum = Loop(Builtin("krum"), bowls, 8).setup();
  EXPECT_THAT(Refusal(Factored(Builtin("krum"), {.codec = {"acpsgd 1"}}), krum), HasSubstr("topk"));
  EXPECT_THAT(Refusal(Factored(Builtin("fedavg"), {.codec = {"acpsgd 1"}}, /*noised=*/true), setup),
              HasSubstr("[privacy]"));
  const algorithms::Setup scaffold = Loop(Builtin("scaffold"), bowls, 8).setup();
  EXPECT_THAT(Refusal(Acp("scaffold", "acpsgd 1", "residual"), scaffold), HasSubstr("twice"));
  EXPECT_TRUE(Acp("scaffold").schema(scaffold)->state.size() == 1) << "auto takes none";
  EXPECT_EQ(Refusal(acp({"acpsgd 1"}), setup), "");
  const UpdateConfig lost{.codec = {"acpsgd 1"}, .feedback = "none", .residual_decay = 0.5};
  EXPECT_THAT(Refusal(Factored(Builtin("fedavg"), lost), setup),
              HasSubstr("update.residual_decay"));
}

}  // namespace
}  // namespace macaw::algorithms
