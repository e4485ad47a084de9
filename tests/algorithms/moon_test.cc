#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "sdk/testing/round_loop.h"

// MOON. A client of these tests is one row whose representation is its model, so ℓ is of the
// cosines of models.

namespace macaw::algorithms {
namespace {

double Inner(const Numbers& a, const Numbers& b) { return a[0] * b[0] + a[1] * b[1]; }
double CosineBetween(const Numbers& a, const Numbers& b) {
  return Inner(a, b) / std::sqrt(Inner(a, a) * Inner(b, b));
}

// Equation 3 of the paper.
double ContrastOf(const Numbers& y, const Numbers& x, const Numbers& p, double tau) {
  const double near = std::exp(CosineBetween(y, x) / tau),
               far = std::exp(CosineBetween(y, p) / tau);
  return -std::log(near / (near + far));
}

// Its gradient, by central differences.
Numbers ContrastGradient(const Numbers& y, const Numbers& x, const Numbers& p, double tau) {
  constexpr double kStep = 1e-5;
  Numbers gradient(2);
  for (size_t i = 0; i < 2; ++i) {
    Numbers above = y, below = y;
    above[i] += kStep;
    below[i] -= kStep;
    gradient[i] = (ContrastOf(above, x, p, tau) - ContrastOf(below, x, p, tau)) / (2 * kStep);
  }
  return gradient;
}

TEST(Moon, RoundsByHand) {
  for (const auto& [mu, tau] : {std::pair(1.0, .5), std::pair(4.0, .2), std::pair(.3, 2.0)}) {
    SCOPED_TRACE(testing::Message() << "mu " << mu << ", tau " << tau);
    RoundLoop loop(Builtin("moon"), Q4(),
                   {.steps = 3,
                    .parameters = {{"mu", mu}, {"temperature", tau}, {"server_lr", .8}},
                    .start = {1, -1}});
    Numbers x = {1, -1};
    std::map<size_t, Numbers> previous;  // p_i
    const std::vector<std::vector<size_t>> cohorts = {{0, 1, 2, 3}, {1, 3}, {0, 1, 2}, {0, 3}};
    for (const std::vector<size_t>& cohort : cohorts) {
      Numbers moved = {0, 0};
      double weight = 0;
      for (const size_t c : cohort) {
        Numbers y = x;
        for (int k = 0; k < 3; ++k) {
          Numbers g = Q4()[c].objective->Gradient(y);
          if (previous.contains(c)) {
            const Numbers pull = ContrastGradient(y, x, previous[c], tau);
            for (size_t i = 0; i < 2; ++i) g[i] += mu * pull[i];
          }
          for (size_t i = 0; i < 2; ++i) y[i] -= .1 * g[i];
        }
        previous[c] = y;
        const double examples = static_cast<double>(c + 1);
        weight += examples;
        for (size_t i = 0; i < 2; ++i) moved[i] += examples * (y[i] - x[i]);
      }
      for (size_t i = 0; i < 2; ++i) x[i] += .8 * moved[i] / weight;
      ASSERT_TRUE(loop.Round(cohort).ok());
      EXPECT_LT(Distance(loop.Model(), x), 1e-8);  // of the differences
      for (const size_t c : cohort) EXPECT_LT(Distance(loop.State(c, 0), previous[c]), 1e-8) << c;
    }
  }
}

TEST(Moon, WithoutTheContrastIsFedAvgBitForBit) {
  RoundLoop moon(Builtin("moon"), Q4(), {.parameters = {{"mu", 0.0}}, .momentum = .9});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.momentum = .9});
  ASSERT_TRUE(moon.SampledRounds(20, 2).ok());
  ASSERT_TRUE(fedavg.SampledRounds(20, 2).ok());
  EXPECT_EQ(moon.ModelDigest(), fedavg.ModelDigest());
}

TEST(Moon, AFirstTurnIsFedAvgs) {
  RoundLoop moon(Builtin("moon"), Q4(), {.parameters = {{"mu", 5.0}}, .start = {1, -1}});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.start = {1, -1}});
  ASSERT_TRUE(moon.Round({0, 1}).ok());
  ASSERT_TRUE(fedavg.Round({0, 1}).ok());
  EXPECT_EQ(moon.ModelDigest(), fedavg.ModelDigest());
  ASSERT_TRUE(moon.Round({2, 3}).ok());
  ASSERT_TRUE(fedavg.Round({2, 3}).ok());
  EXPECT_EQ(moon.ModelDigest(), fedavg.ModelDigest());
  ASSERT_TRUE(moon.Round({2, 3}).ok());
  ASSERT_TRUE(fedavg.Round({2, 3}).ok());
  EXPECT_NE(moon.ModelDigest(), fedavg.ModelDigest());
}

// What was trained in a lost turn is no earlier model.
TEST(Moon, ALostTurnLeavesThePreviousModel) {
  RoundLoop loop(Builtin("moon"), Q4(), {.start = {1, -1}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  const Numbers before = loop.State(2, 0);
  ASSERT_TRUE(loop.Round({0, 1, 2, 3}, {2}).ok());
  EXPECT_EQ(loop.State(2, 0), before);
  EXPECT_NE(loop.State(1, 0), before);
}

// A network whose units are all off, and a model of zeros, have no direction.
TEST(Moon, ARepresentationOfZerosHasNoCosine) {
  RoundLoop zero(Builtin("moon"), Q4(), {.steps = 1, .parameters = {{"mu", 5.0}}});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.steps = 1});
  // All clients have a previous model, and x is 0 again.
  ASSERT_TRUE(zero.Rounds(1).ok());
  const ServerState start = RoundLoop(Builtin("moon"), Q4(), {}).server().Save();
  ASSERT_TRUE(zero.server().Load(start).ok());
  ASSERT_TRUE(zero.Rounds(1).ok());
  ASSERT_TRUE(fedavg.Rounds(1).ok());
  EXPECT_EQ(zero.ModelDigest(), fedavg.ModelDigest());
}

TEST(Moon, StaysNearerToTheCommonModelThanToThePreviousOne) {
  const auto turned = [](double mu) {
    RoundLoop loop(Builtin("moon"), Q4(), {.parameters = {{"mu", mu}}, .start = {1, -1}});
    EXPECT_TRUE(loop.Rounds(2).ok());
    const Numbers x = loop.Model(), before = loop.State(1, 0);
    EXPECT_TRUE(loop.Rounds(1).ok());
    return CosineBetween(loop.State(1, 0), x) - CosineBetween(loop.State(1, 0), before);
  };
  EXPECT_GT(turned(5), turned(0));
}

}  // namespace
}  // namespace macaw::algorithms
