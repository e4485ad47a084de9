#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;
using ::testing::HasSubstr;

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
  // x₁ = −η·Σ p_i ∇f_i(0) by hand from x₀ = 0.
  Numbers step(2);
  const double p[] = {.1, .2, .3, .4};
  const std::vector<TestPopulationClient> clients = Q4();
  for (size_t c = 0; c < 4; ++c) {
    const Numbers gradient = clients[c].objective->Gradient({0, 0});
    for (size_t i = 0; i < 2; ++i) step[i] -= .1 * p[c] * gradient[i];
  }
  EXPECT_LT(Distance(loop.Model(), step), 1e-15);
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_LT(Distance(loop.Model(), Q4Optimum()), 1e-12);
}

TEST(GradientDescent, TakesOneStepOnAllRowsWhateverIsConfigured) {
  RoundLoop gd(Builtin("gd"), Q4(), {.steps = 7});
  RoundLoop one_step = FedAvgOn(Q4(), {.steps = 1});
  ASSERT_TRUE(gd.Rounds(20).ok());
  ASSERT_TRUE(one_step.Rounds(20).ok());
  EXPECT_EQ(gd.ModelDigest(), one_step.ModelDigest());
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
  // Client 3 has 4 equal examples: split them into 1 and 3.
  std::vector<TestPopulationClient> halves = Q4();
  halves[3].examples = 1;
  halves.push_back({halves[3].objective, 3});
  const Options options = {.steps = 1};
  RoundLoop whole = FedAvgOn(Q4(), options);
  RoundLoop split = FedAvgOn(halves, options);
  ASSERT_TRUE(whole.Rounds(1).ok());
  ASSERT_TRUE(split.Rounds(1).ok());
  // Sums are exact, so not even one bit differs.
  EXPECT_EQ(whole.ModelDigest(), split.ModelDigest());
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
  other.vectors.emplace("model", FlatVector(Plain(3, DType::kF64)));
  EXPECT_THAT(std::string(loop.server().Load(other).message()), HasSubstr("another layout"));
  EXPECT_EQ(loop.ModelDigest(), before);
}

TEST(FedAvg, RefusesAnAggregateThatIsNotItsOwn) {
  RoundLoop loop = FedAvgOn(Q4(), {});
  const Digest before = loop.ModelDigest();
  EXPECT_FALSE(loop.server().Apply({.round = Round(1)}, {}).ok());
  aggregation::Aggregate wrong;
  wrong.channels.push_back({.name = "delta", .value = FlatVector(Plain(3, DType::kF64))});
  EXPECT_FALSE(loop.server().Apply({.round = Round(1)}, std::move(wrong)).ok());
  EXPECT_EQ(loop.ModelDigest(), before);
}

TEST(FedAvg, TakesThePlainMeanOfBuffersWhateverTheServersRate) {
  // In one step statistics move a tenth of the way to 1, 2, 3, 4; weights move by half of Δ̄.
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop =
      FedAvgOn(Q4(), {.steps = 1, .parameters = {{"server_lr", 0.5}}, .layout = layout});
  RoundLoop whole = FedAvgOn(Q4(), {.steps = 1});
  ASSERT_TRUE(loop.Rounds(1).ok());
  ASSERT_TRUE(whole.Rounds(1).ok());
  const double mean = loop.server().Model().As<double>()[layout->Find("running_mean")->offset];
  EXPECT_NEAR(mean, .1 * (.1 * 1 + .2 * 2 + .3 * 3 + .4 * 4), 1e-15);
  EXPECT_LT(Distance(loop.Model(), {whole.Model()[0] / 2, whole.Model()[1] / 2}), 1e-16);
}

TEST(FedAvg, NeitherClipsStatisticsNorWeighsThemAsPlanned) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t offset = layout->Find("running_mean")->offset;
  RoundLoop clip =
      FedAvgOn(Q4(), {.steps = 1, .parameters = {{"update_clip", 1e-3}}, .layout = layout});
  ASSERT_TRUE(clip.Rounds(1).ok());
  EXPECT_NEAR(clip.server().Model().As<double>()[offset], .3, 1e-15);
  RoundLoop poisson =
      FedAvgOn(Q4(), {.steps = 1, .layout = layout, .cohort = {.size = 2, .sampling = "poisson"}});
  ASSERT_TRUE(poisson.Round({0, 2, 3}).ok());  // they weigh 8 where 5 was planned
  EXPECT_NEAR(poisson.server().Model().As<double>()[offset], .1 * (1 + 9 + 16) / 8, 1e-15);
}

TEST(FedAvg, TheServersRateFollowsItsSchedule) {
  RoundLoop loop =
      FedAvgOn(Q4(), {.steps = 1, .parameters = {{"server_lr_schedule", "cosine rounds 2"}}});
  ASSERT_TRUE(loop.Rounds(2).ok());
  const Numbers after_two = loop.Model();
  ASSERT_TRUE(loop.Rounds(2).ok());  // factor 0 from round 3 on
  EXPECT_EQ(loop.Model(), after_two);
  EXPECT_GT(Distance(after_two, {0, 0}), 0.1);
}

TEST(FedAvg, ClipsLongUpdatesOnly) {
  // The four updates of one step from the origin have different lengths; those above 0.3 are
  // shortened to 0.3.
  RoundLoop loop = FedAvgOn(Q4(), {.steps = 1, .parameters = {{"update_clip", 0.3}}});
  Numbers expected(2);
  const double p[] = {.1, .2, .3, .4};
  int clipped = 0;
  for (size_t c = 0; c < 4; ++c) {
    const Numbers g = Q4()[c].objective->Gradient({0, 0});
    const double norm = .1 * std::hypot(g[0], g[1]);
    clipped += norm > 0.3;
    for (size_t i = 0; i < 2; ++i) expected[i] -= .1 * p[c] * g[i] * std::min(1.0, 0.3 / norm);
  }
  ASSERT_TRUE(clipped > 0 && clipped < 4);
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), expected), 1e-15);
}

TEST(FedAvg, WithAVastClipIsFedAvgBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop plain = FedAvgOn(Q4(), {.dtype = dtype});
    RoundLoop clip = FedAvgOn(Q4(), {.parameters = {{"update_clip", 1e30}}, .dtype = dtype});
    ASSERT_TRUE(plain.Rounds(10).ok());
    ASSERT_TRUE(clip.Rounds(10).ok());
    EXPECT_EQ(clip.ModelDigest(), plain.ModelDigest());
  }
}

TEST(FedAvg, LocalMomentumStartsAfreshEachRound) {
  RoundLoop loop = FedAvgOn({Q4()[1]}, {.steps = 3, .momentum = .9});
  Numbers w(2);
  for (int round = 0; round < 3; ++round) {
    Numbers momentum(2);
    for (int k = 0; k < 3; ++k) {
      const Numbers g = Q4()[1].objective->Gradient(w);
      for (size_t i = 0; i < 2; ++i) {
        momentum[i] = .9 * momentum[i] + g[i];
        w[i] -= .1 * momentum[i];
      }
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(Distance(loop.Model(), w), 1e-14) << "round " << round + 1;
  }
}

TEST(FedAvg, CountsAClientDrawnTwiceTwiceAndTakesThePlainMean) {
  // Clients that were drawn in proportion to their weights must not be weighted again.
  const RoundLoop::Options options = {.steps = 1, .cohort = {.sampling = "proportional"}};
  RoundLoop loop = FedAvgOn(Q4(), options);
  ASSERT_TRUE(loop.Round({3, 0, 3}).ok());
  const Numbers a = Q4()[0].objective->Gradient({0, 0}), d = Q4()[3].objective->Gradient({0, 0});
  EXPECT_LT(Distance(loop.Model(), {-.1 * (a[0] + 2 * d[0]) / 3, -.1 * (a[1] + 2 * d[1]) / 3}),
            1e-15);
}

TEST(FedAvg, DividesAPoissonCohortByItsPlannedWeight) {
  const RoundLoop::Options options = {.steps = 1, .cohort = {.size = 2, .sampling = "poisson"}};
  RoundLoop loop = FedAvgOn(Q4(), options);
  ASSERT_TRUE(loop.Round({0, 2, 3}).ok());  // three came, two were planned: q·W = 5
  Numbers expected(2);
  for (const size_t c : {0, 2, 3}) {
    const Numbers g = Q4()[c].objective->Gradient({0, 0});
    for (size_t i = 0; i < 2; ++i) expected[i] -= .1 * static_cast<double>(c + 1) * g[i] / 5;
  }
  EXPECT_LT(Distance(loop.Model(), expected), 1e-15);
}

TEST(FedAvg, PlansAPoissonCohortWithoutTheStragglersThatAreDropped) {
  RoundLoop loop = FedAvgOn(Q4(), {.steps = 1,
                                   .cohort = {.size = 2,
                                              .sampling = "poisson",
                                              .straggler_fraction = 0.25,
                                              .straggler_policy = "drop"}});
  ASSERT_TRUE(loop.Round({0, 2, 3}).ok());  // ¾ of q·W
  Numbers expected(2);
  for (const size_t c : {0, 2, 3}) {
    const Numbers g = Q4()[c].objective->Gradient({0, 0});
    for (size_t i = 0; i < 2; ++i) expected[i] -= .1 * static_cast<double>(c + 1) * g[i] / 3.75;
  }
  EXPECT_LT(Distance(loop.Model(), expected), 1e-14);
}

}  // namespace
}  // namespace macaw::algorithms
