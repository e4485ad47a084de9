#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;
using Parameters = std::map<std::string, ParameterValue>;

// Two passes each: 2, 4, 6 and 8 steps.
RoundLoop Scaffold(const Parameters& parameters, Options options = {.steps = 0, .epochs = 2}) {
  options.parameters = parameters;
  return {Builtin("scaffold"), Q4(), options};
}

// Compares c with the mean of the clients' c_i, or with Σ p_i c_i.
double ControlError(const RoundLoop& loop, bool weighted) {
  Numbers mean(2);
  for (size_t client = 0; client < 4; ++client) {
    for (size_t i = 0; i < 2; ++i)
      mean[i] += loop.State(client, 0)[i] * (weighted ? loop.Share(client) : 0.25);
  }
  return Distance(mean, loop.Saved("control"));
}

TEST(Scaffold, ReachesTheOptimumOfItsObjective) {
  for (const bool weighted : {false, true}) {
    for (const int64_t option : {1, 2}) {
      for (const uint64_t size : {4, 2}) {
        RoundLoop loop = Scaffold({{"option", option}, {"weighted", weighted}});
        ASSERT_TRUE(loop.SampledRounds(4000, size).ok());
        EXPECT_LT(Distance(loop.Model(), weighted ? Q4Optimum() : Q4UniformOptimum()), 1e-14)
            << "option " << option << ", " << size << " a round, weighted " << weighted;
      }
    }
  }
}

TEST(Scaffold, KeepsTheServersControlAtTheMeanOfTheClients) {
  for (const bool weighted : {false, true}) {
    RoundLoop loop = Scaffold({{"weighted", weighted}});
    for (int round = 1; round <= 50; ++round) {
      ASSERT_TRUE(loop.SampledRounds(1, 2).ok());
      EXPECT_LT(ControlError(loop, weighted), 5e-15) << "round " << round;
    }
    EXPECT_GT(Distance(loop.State(0, 0), {0, 0}), 0.1);
  }
}

TEST(Scaffold, KeepsItWhenClientsAreLost) {
  for (const bool weighted : {false, true}) {
    RoundLoop loop = Scaffold({{"weighted", weighted}});
    for (size_t round = 0; round < 40; ++round) {
      ASSERT_TRUE(loop.Round({0, 1, 2, 3}, {round % 4}).ok());
      EXPECT_LT(ControlError(loop, weighted), 5e-15);
    }
    ASSERT_TRUE(loop.Round({1, 2}, {1, 2}).ok());  // all of them are lost
    EXPECT_LT(ControlError(loop, weighted), 5e-15);
  }
}

TEST(Scaffold, WithOneStepIsGradientDescent) {
  // Holds for any c_i with mean c: those after a few rounds with more steps.
  RoundLoop warm = Scaffold({{"weighted", true}});
  ASSERT_TRUE(warm.SampledRounds(5, 2).ok());
  const Options one_step = {.steps = 1, .start = warm.Model()};
  RoundLoop scaffold = Scaffold({{"weighted", true}}, {.steps = 1});
  ASSERT_TRUE(scaffold.ResumeFrom(warm).ok());
  RoundLoop descent(Builtin("fedavg"), Q4(), one_step);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(scaffold.Rounds(1).ok());
    ASSERT_TRUE(descent.Rounds(1).ok());
    EXPECT_LT(Distance(scaffold.Model(), descent.Model()), 1e-14);
  }
}

TEST(Scaffold, WithOneClientIsSgd) {
  for (const int64_t option : {1, 2}) {
    RoundLoop scaffold(Builtin("scaffold"), {Q4()[0]}, {.parameters = {{"option", option}}});
    RoundLoop sgd(Builtin("fedavg"), {Q4()[0]}, {});
    ASSERT_TRUE(scaffold.Rounds(5).ok());
    ASSERT_TRUE(sgd.Rounds(5).ok());
    EXPECT_LT(Distance(scaffold.Model(), sgd.Model()), 1e-15);
  }
}

TEST(Scaffold, OptionTwoEstimatesTheMeanGradientOfTheSteps) {
  // One client's first round from the origin with c = c_i = 0, by hand: c_i⁺ = mean of the
  // gradients met; with momentum ρ the k-th of K counts (1 − ρ^(K−k+1))/(1 − ρ), over their sum.
  for (const double rho : {0.0, 0.9}) {
    const Options options = {.steps = 3, .momentum = rho};
    RoundLoop loop = Scaffold({}, options);
    ASSERT_TRUE(loop.Round({1}).ok());
    Numbers w(2), momentum(2), weighted_sum(2);
    double weights = 0;
    for (int k = 1; k <= 3; ++k) {
      const Numbers g = Q4()[1].objective->Gradient(w);
      double weight = 0;  // of this gradient in the displacement
      for (int power = 0; power <= 3 - k; ++power) weight += std::pow(rho, power);
      weights += weight;
      for (size_t i = 0; i < 2; ++i) {
        weighted_sum[i] += weight * g[i];
        momentum[i] = rho * momentum[i] + g[i];
        w[i] -= 0.1 * momentum[i];
      }
    }
    EXPECT_LT(Distance(loop.State(1, 0), {weighted_sum[0] / weights, weighted_sum[1] / weights}),
              1e-14)
        << rho;
  }
}

TEST(Scaffold, WithMomentumStillReachesTheOptimum) {
  RoundLoop loop = Scaffold({}, {.steps = 0, .epochs = 2, .lr = 0.02, .momentum = 0.5});
  ASSERT_TRUE(loop.SampledRounds(6000, 2).ok());
  EXPECT_LT(Distance(loop.Model(), Q4UniformOptimum()), 1e-13);
}

TEST(Scaffold, OptionTwoStaysExactWhenGradientsAreClipped) {
  // The clip applies to the gradient before c − c_i is added, so c_i⁺ is the mean of the clipped
  // gradients.
  RoundLoop loop = Scaffold({}, {.steps = 3, .clip_norm = 0.5});
  ASSERT_TRUE(loop.Rounds(2).ok());
  const Numbers c = loop.Saved("control"), own = loop.State(1, 0);
  ASSERT_GT(Distance(c, own), 0.1);
  Numbers y = loop.Model(), mean(2);
  for (int k = 0; k < 3; ++k) {
    const Numbers g = Q4()[1].objective->Gradient(y);
    const double factor = std::min(1.0, 0.5 / std::hypot(g[0], g[1]));
    ASSERT_LT(factor, 1);
    for (size_t i = 0; i < 2; ++i) {
      mean[i] += factor * g[i] / 3;
      y[i] -= 0.1 * (factor * g[i] + c[i] - own[i]);
    }
  }
  ASSERT_TRUE(loop.Round({1}).ok());
  EXPECT_LT(Distance(loop.State(1, 0), mean), 1e-14);
  EXPECT_LT(Distance(loop.Model(), y), 1e-14);
}

TEST(Scaffold, LeavesTheControlOfAClientThatTookNoStep) {
  std::vector<TestPopulationClient> population = Q4();
  RoundLoop loop(Builtin("scaffold"), population, {.steps = 0, .epochs = 0});
  ASSERT_TRUE(loop.Rounds(2).ok());
  EXPECT_EQ(loop.State(0, 0), (Numbers{0, 0}));
  EXPECT_EQ(loop.Model(), (Numbers{0, 0}));
}

TEST(Scaffold, ControlsKnowNoBuffers) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  for (const int64_t option : {1, 2}) {
    RoundLoop loop = Scaffold({{"option", option}}, {.layout = layout});
    ASSERT_TRUE(loop.Rounds(3).ok());
    const ServerState saved = loop.server().Save();
    const uint64_t offset = layout->Find("running_mean")->offset;
    EXPECT_EQ(saved.vectors.at("control").As<double>()[offset], 0);
    EXPECT_GT(saved.vectors.at("model").As<double>()[offset], 0.5);
    EXPECT_NE(saved.vectors.at("control").As<double>()[0], 0);
  }
}

TEST(Scaffold, RunsInSinglePrecision) {
  RoundLoop loop = Scaffold({{"weighted", true}}, {.dtype = DType::kF32});
  ASSERT_TRUE(loop.SampledRounds(1000, 2).ok());
  EXPECT_LT(Distance(loop.Model(), Q4Optimum()), 5e-6);
}

}  // namespace
}  // namespace macaw::algorithms
