#include <gtest/gtest.h>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;

RoundLoop FedDynWith(bool weighted, Options options = {}) {
  options.parameters = {{"alpha", 0.5}, {"weighted", weighted}};
  return {Builtin("feddyn"), Q4(), options};
}

// Compares h with the mean of the clients' g_k, or with Σ p_k g_k.
double InvariantError(const RoundLoop& loop, bool weighted) {
  Numbers mean(2);
  for (size_t client = 0; client < 4; ++client) {
    for (size_t i = 0; i < 2; ++i)
      mean[i] += loop.State(client, 0)[i] * (weighted ? loop.Share(client) : 0.25);
  }
  return Distance(mean, loop.Saved("h"));
}

TEST(FedDyn, ReachesTheOptimumOfItsObjective) {
  for (const bool weighted : {false, true}) {
    for (const uint64_t size : {4, 2}) {
      RoundLoop loop = FedDynWith(weighted);
      ASSERT_TRUE(loop.SampledRounds(4000, size).ok());
      EXPECT_LT(Distance(loop.Model(), weighted ? Q4Optimum() : Q4UniformOptimum()), 1e-14)
          << size << " a round, weighted " << weighted;
    }
  }
}

TEST(FedDyn, KeepsHAtTheMeanOfTheClientsGradientsEvenWhenSomeAreLost) {
  for (const bool weighted : {false, true}) {
    RoundLoop loop = FedDynWith(weighted);
    for (size_t round = 0; round < 50; ++round) {
      ASSERT_TRUE(loop.SampledRounds(1, 2).ok());
      EXPECT_LT(InvariantError(loop, weighted), 1e-14);
      ASSERT_TRUE(loop.Round({0, 1, 2, 3}, {round % 4}).ok());
      EXPECT_LT(InvariantError(loop, weighted), 1e-14);
    }
    EXPECT_GT(Distance(loop.State(0, 0), {0, 0}), 0.1);
  }
}

TEST(FedDyn, OneRoundByHand) {
  // One of two clients, f = ½(w − b)², two steps, η = .1, α = .5, x₀ = 0, b = 1:
  // θ₁ = .1, θ₂ = .1 − .1·(−.9 + .5·.1) = .185. g = −.0925; h = −(.5/2)·.185 = −.04625;
  // x = .185 + .04625/.5 = .2775.
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{1, 1});
  RoundLoop loop(Builtin("feddyn"), {{f, 1}, {f, 1}}, {.steps = 2, .parameters = {{"alpha", 0.5}}});
  ASSERT_TRUE(loop.Round({1}).ok());
  EXPECT_NEAR(loop.State(1, 0)[0], -.0925, 1e-16);
  EXPECT_NEAR(loop.Saved("h")[0], -.04625, 1e-16);
  EXPECT_NEAR(loop.Model()[0], .2775, 1e-15);
  // Its second turn: θ₁ = .2775 − .1·(−.7225 + .0925) = .3405,
  // θ₂ = .3405 − .1·(−.6595 + .0925 + .5·.063) = .39405.
  ASSERT_TRUE(loop.Round({1}).ok());
  EXPECT_NEAR(loop.State(1, 0)[0], -.0925 - .5 * (.39405 - .2775), 1e-15);
}

TEST(FedDyn, MayBeEvaluatedAtTheMeanOfTheRoundsModels) {
  // As in the test above: θ = .185 after the first round, and x moves on to .2775.
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{1, 1});
  const auto make = [&](const char* evaluate) {
    return RoundLoop(
        Builtin("feddyn"), {{f, 1}, {f, 1}},
        {.steps = 2, .parameters = {{"alpha", 0.5}, {"evaluate", evaluate}}, .start = {.25, 0}});
  };
  RoundLoop mean = make("mean"), x = make("x"), resumed = make("mean");
  EXPECT_EQ(mean.Result(), (Numbers{.25, 0}));  // no client has trained
  for (int round = 0; round < 3; ++round) {
    const double before = mean.Model()[0], g = mean.State(1, 0)[0];
    ASSERT_TRUE(mean.Round({1}).ok());
    ASSERT_TRUE(x.Round({1}).ok());
    EXPECT_NEAR(mean.Result()[0], before - (mean.State(1, 0)[0] - g) / .5, 1e-15);  // θ by g's rule
    EXPECT_NEAR(mean.Model()[0], mean.Result()[0] - mean.Saved("h")[0] / .5, 1e-15);
    // The choice of the evaluated model does not affect training.
    EXPECT_EQ(mean.ModelDigest(), x.ModelDigest());
    EXPECT_EQ(x.Result(), x.Model());
  }
  const Numbers last = mean.Result();
  ASSERT_TRUE(resumed.ResumeFrom(mean).ok());
  EXPECT_EQ(resumed.Result(), last);
  ASSERT_TRUE(mean.Round({}).ok());
  EXPECT_EQ(mean.Result(), last);
}

TEST(FedDyn, TakesThePlainMeanOfBuffers) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop = FedDynWith(false, {.steps = 1, .layout = layout});
  const uint64_t offset = layout->Find("running_mean")->offset;
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_NEAR(loop.server().Model().As<double>()[offset], .1 * 2.5, 1e-15);
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_NEAR(loop.server().Model().As<double>()[offset], .25 + .1 * (2.5 - .25), 1e-15);
  EXPECT_EQ(loop.server().Save().vectors.at("h").As<double>()[offset], 0);
}

TEST(FedDyn, WeightedWithEqualWeightsIsPlain) {
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 3;
  RoundLoop plain(Builtin("feddyn"), equal, {});
  RoundLoop weighted(Builtin("feddyn"), equal, {.parameters = {{"weighted", true}}});
  ASSERT_TRUE(plain.SampledRounds(20, 2).ok());
  ASSERT_TRUE(weighted.SampledRounds(20, 2).ok());
  EXPECT_EQ(plain.ModelDigest(), weighted.ModelDigest());
}

}  // namespace
}  // namespace macaw::algorithms
