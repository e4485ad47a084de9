#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

double LossOf(size_t client, const Numbers& x) { return Q4()[client].objective->Loss(x); }

TEST(Term, OneRoundByHand) {
  const Numbers x = {1, -1};
  for (const double t : {-0.5, 0.1, 0.7, 3.0}) {
    SCOPED_TRACE(t);
    RoundLoop loop(Builtin("term"), Q4(),
                   {.parameters = {{"t", t}, {"server_lr", 0.9}}, .start = x});
    Numbers step(2);
    double weights = 0;
    for (size_t c = 0; c < 4; ++c) {
      Numbers y = x;
      for (int k = 0; k < 7; ++k) {
        const Numbers g = Q4()[c].objective->Gradient(y);
        for (size_t i = 0; i < 2; ++i) y[i] -= .1 * g[i];
      }
      const double weight = static_cast<double>(c + 1) / 10 * std::exp(t * LossOf(c, x));
      for (size_t i = 0; i < 2; ++i) step[i] += weight * (y[i] - x[i]);
      weights += weight;
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_EQ(loop.phases(), 2);
    EXPECT_LT(Distance(loop.Model(), {1 + .9 * step[0] / weights, -1 + .9 * step[1] / weights}),
              1e-13);
    EXPECT_NEAR(loop.metrics().at("tilted_loss"), std::log(weights) / t, 1e-12);
  }
}

TEST(Term, WithoutATiltIsFedAvg) {
  RoundLoop term(Builtin("term"), Q4(), {.parameters = {{"t", 0.0}}});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(term.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_EQ(term.ModelDigest(), fedavg.ModelDigest());
}

TEST(Term, EndsWhereTheTiltedLossHasNoGradient) {
  for (const double t : {-0.3, 0.5, 2.0}) {
    SCOPED_TRACE(t);
    RoundLoop loop(Builtin("term"), Q4(),
                   {.steps = 1, .parameters = {{"t", t}}, .start = {.3, 2.4}, .lr = 0.02});
    ASSERT_TRUE(loop.Rounds(6000).ok());
    Numbers gradient(2);
    double weights = 0;
    for (size_t c = 0; c < 4; ++c) {
      const double weight = static_cast<double>(c + 1) / 10 * std::exp(t * LossOf(c, loop.Model()));
      const Numbers g = Q4()[c].objective->Gradient(loop.Model());
      for (size_t i = 0; i < 2; ++i) gradient[i] += weight * g[i];
      weights += weight;
    }
    EXPECT_LT(std::abs(gradient[0]) / weights, 1e-11);
    EXPECT_LT(std::abs(gradient[1]) / weights, 1e-11);
    EXPECT_GT(Distance(loop.Model(), Q4Optimum()), .05);
  }
}

TEST(Term, LowersTheLargestLossAsTheTiltGrows) {
  const auto worst = [](double t) {
    RoundLoop loop(Builtin("term"), Q4(),
                   {.steps = 1, .parameters = {{"t", t}}, .start = {.3, 2.4}, .lr = 0.02});
    EXPECT_TRUE(loop.Rounds(3000).ok());
    double largest = 0;
    for (size_t c = 0; c < 4; ++c) largest = std::max(largest, LossOf(c, loop.Model()));
    return largest;
  };
  EXPECT_LT(worst(.5), worst(0));
  EXPECT_LT(worst(5), worst(.5));
  EXPECT_GT(worst(-.5), worst(0));
}

// e^(t·f) of any client is infinite, or 0.
TEST(Term, SurvivesLossesWhosePowersADoubleDoesNotHold) {
  const Numbers x = {60, -60};
  for (const double t : {10.0, -10.0}) {
    SCOPED_TRACE(t);
    RoundLoop loop(Builtin("term"), Q4(), {.steps = 1, .parameters = {{"t", t}}, .start = x});
    size_t chosen = 0;  // far from the others
    for (size_t c = 1; c < 4; ++c)
      if (t * LossOf(c, x) > t * LossOf(chosen, x)) chosen = c;
    ASSERT_TRUE(loop.Rounds(1).ok());
    const Numbers g = Q4()[chosen].objective->Gradient(x);
    EXPECT_LT(Distance(loop.Model(), {60 - .1 * g[0], -60 - .1 * g[1]}), 1e-12);
    EXPECT_TRUE(std::isfinite(loop.metrics().at("tilted_loss")));
  }
}

TEST(Term, TakesTheWeightedMeanOfStatistics) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop(Builtin("term"), Q4(), {.steps = 1, .layout = layout});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_NEAR(loop.server().Model().As<double>()[layout->Find("running_mean")->offset], .3, 1e-15);
}

}  // namespace
}  // namespace macaw::algorithms
