#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/mean_delta.h"
#include "tests/algorithms/round_loop.h"

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;
using ::testing::HasSubstr;

constexpr std::array<double, 2> kOptimum = {.407946308724832, 2.725422818791946};

RoundLoop FedAvgOn(std::vector<TestPopulationClient> population, const Options& options) {
  return {Builtin("fedavg"), std::move(population), options};
}

TEST(FedAvg, ReachesItsKnownFixedPoint) {
  RoundLoop loop = FedAvgOn(Q4(), {});
  ASSERT_TRUE(loop.Rounds(500).ok());
  EXPECT_LT(Distance(loop.Model(), {.382204562986033, 2.328742918343889}), 1e-12);
}

TEST(FedAvg, WithOneStepIsGradientDescentAndReachesTheOptimum) {
  RoundLoop loop = FedAvgOn(Q4(), {.steps = 1});
  ASSERT_TRUE(loop.Rounds(1).ok());
  // x₁ = η·Σ p_i A_i b_i by hand from x₀ = 0.
  std::array<double, 2> step{};
  const double p[] = {.1, .2, .3, .4};
  const std::vector<TestPopulationClient> clients = Q4();
  for (size_t c = 0; c < 4; ++c) {
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j)
        step[i] += .1 * p[c] * clients[c].objective.a[i][j] * clients[c].objective.b[j];
    }
  }
  EXPECT_LT(Distance(loop.Model(), step), 1e-15);
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_LT(Distance(loop.Model(), kOptimum), 1e-12);
}

TEST(FedAvg, WithManyStepsReachesTheMeanOfTheMinima) {
  RoundLoop loop = FedAvgOn(Q4(), {.steps = 2000});
  ASSERT_TRUE(loop.Rounds(3).ok());
  EXPECT_LT(Distance(loop.Model(), {.45, 1.4}), 1e-12);
}

TEST(FedAvg, OneClientAloneIsCentralisedTraining) {
  RoundLoop split = FedAvgOn({Q4()[0]}, {.steps = 7});
  RoundLoop whole = FedAvgOn({Q4()[0]}, {.steps = 21});
  ASSERT_TRUE(split.Rounds(3).ok());
  ASSERT_TRUE(whole.Rounds(1).ok());
  EXPECT_LT(Distance(split.Model(), whole.Model()), 1e-15);
}

TEST(FedAvg, SplittingAClientInTwoChangesNothingForOneStep) {
  std::vector<TestPopulationClient> halves = Q4();  // client 3 has 4 examples: 1 and 3 of the same
  halves[3].examples = 1;
  halves.push_back({halves[3].objective, 3});
  const Options options = {.steps = 1};
  RoundLoop whole = FedAvgOn(Q4(), options);
  RoundLoop split = FedAvgOn(halves, options);
  ASSERT_TRUE(whole.Rounds(1).ok());
  ASSERT_TRUE(split.Rounds(1).ok());
  EXPECT_EQ(whole.ModelDigest(), split.ModelDigest());  // exact sums: not even a bit
}

TEST(FedAvg, TheOrderOfClientsChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop forward = FedAvgOn(Q4(), {.dtype = dtype});
    RoundLoop backward = FedAvgOn(Q4(), {.dtype = dtype});
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(forward.Round({0, 1, 2, 3}).ok());
      ASSERT_TRUE(backward.Round({3, 1, 0, 2}).ok());
      ASSERT_EQ(forward.ModelDigest(), backward.ModelDigest());
    }
  }
}

TEST(FedAvg, RunsInSinglePrecision) {
  RoundLoop loop = FedAvgOn(Q4(), {.dtype = DType::kF32});
  ASSERT_TRUE(loop.Rounds(500).ok());
  EXPECT_LT(Distance(loop.Model(), {.382204562986033, 2.328742918343889}), 1e-6);
}

TEST(FedAvg, TheServersRateScalesTheStep) {
  RoundLoop once = FedAvgOn(Q4(), {});
  RoundLoop half = FedAvgOn(Q4(), {.parameters = {{"server_lr", 0.5}}});
  ASSERT_TRUE(once.Rounds(1).ok());
  ASSERT_TRUE(half.Rounds(1).ok());
  EXPECT_LT(Distance(half.Model(), {once.Model()[0] / 2, once.Model()[1] / 2}), 1e-16);
}

TEST(FedAvg, ARoundWithoutClientsLeavesTheModel) {
  RoundLoop loop = FedAvgOn(Q4(), {.start = {3, -4}});
  const Digest before = loop.ModelDigest();
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_EQ(loop.ModelDigest(), before);
  ASSERT_TRUE(loop.Round({2}).ok());
  EXPECT_NE(loop.ModelDigest(), before);
}

TEST(FedAvg, ASavedServerGoesOnWithTheSameBits) {
  RoundLoop straight = FedAvgOn(Q4(), {});
  ASSERT_TRUE(straight.Rounds(3).ok());
  const ServerState saved = straight.server().Save();
  ASSERT_TRUE(straight.Rounds(2).ok());
  RoundLoop resumed = FedAvgOn(Q4(), {});
  ASSERT_TRUE(resumed.server().Load(saved).ok());
  ASSERT_TRUE(resumed.Rounds(2).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
}

TEST(FedAvg, LoadsOnlyWhatFits) {
  RoundLoop loop = FedAvgOn(Q4(), {.start = {3, -4}});
  const Digest before = loop.ModelDigest();
  EXPECT_THAT(std::string(loop.server().Load({}).message()), HasSubstr("'model'"));
  ServerState other;
  other.vectors.emplace("model", FlatVector(ParameterLayout::Scalars("x", 3, DType::kF64)));
  EXPECT_THAT(std::string(loop.server().Load(other).message()), HasSubstr("another layout"));
  EXPECT_EQ(loop.ModelDigest(), before);
}

TEST(FedAvg, RefusesAnAggregateThatIsNotItsOwn) {
  RoundLoop loop = FedAvgOn(Q4(), {});
  const Digest before = loop.ModelDigest();
  EXPECT_FALSE(loop.server().Apply(Round(1), Phase(0), {}).ok());
  aggregation::Aggregate wrong;
  wrong.channels.emplace_back().value = FlatVector(ParameterLayout::Scalars("x", 3, DType::kF64));
  EXPECT_FALSE(loop.server().Apply(Round(1), Phase(0), std::move(wrong)).ok());
  EXPECT_EQ(loop.ModelDigest(), before);
}

TEST(FedAvg, AveragesBuffersWithTheRest) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {1}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF32);
  MeanDeltaServer server{FlatVector(layout), 1.0};
  aggregation::Aggregate aggregate;
  aggregate.channels.emplace_back().value = FlatVector(layout);
  std::ranges::fill(aggregate.channels[0].value.As<float>(), 2.0F);
  ASSERT_TRUE(server.Apply(Round(1), Phase(0), std::move(aggregate)).ok());
  EXPECT_EQ(server.Model().As<float>()[layout->Find("running_mean")->offset], 2.0F);
}

}  // namespace
}  // namespace macaw::algorithms
