#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"
#include "training/local_sgd.h"

namespace macaw::algorithms {
namespace {

using Parameters = std::map<std::string, ParameterValue>;

double ANorm1(training::SgdRule rule, int steps) {
  training::StepNorm norm(rule);
  for (int k = 0; k < steps; ++k) norm.Step();
  return norm.value();
}

TEST(FedNova, MeasuresWhatTheFormulasSay) {
  EXPECT_EQ(ANorm1({.lr = .1}, 7), 7);
  EXPECT_NEAR(ANorm1({.lr = .1, .momentum = .9}, 7), 23.046721, 1e-12);
  EXPECT_NEAR(ANorm1({.lr = .1, .momentum = .9}, 50), 410.463839768659, 1e-9);
  EXPECT_NEAR(ANorm1({.lr = .1, .mu = .5}, 9), 7.395011805508, 1e-12);
  EXPECT_NEAR(ANorm1({.lr = .1, .momentum = .9, .mu = .5}, 9), 24.018440121133, 1e-12);
}

// Fixed point of clients that take 2, 5, 9 and 14 steps.
Numbers UnevenFixedPoint(const std::string& name, double lr) {
  std::vector<TestPopulationClient> uneven = Q4();
  const uint32_t steps[] = {2, 5, 9, 14};
  for (size_t i = 0; i < 4; ++i) uneven[i].steps = steps[i];
  RoundLoop loop(Builtin(name), uneven, {.lr = lr});
  EXPECT_TRUE(loop.Rounds(static_cast<int>(6 / lr)).ok());
  return loop.Model();
}

TEST(FedNova, LosesTheBiasOfUnevenWorkAsTheRateFalls) {
  EXPECT_LT(Distance(UnevenFixedPoint("fednova", .001), Q4Optimum()), .0099);
  EXPECT_GT(Distance(UnevenFixedPoint("fedavg", .001), Q4Optimum()), .4);
  EXPECT_GT(Distance(UnevenFixedPoint("fednova", .01), Q4Optimum()), .05);
}

TEST(FedNova, WithEqualStepsIsFedAvg) {
  for (const double rho : {0.0, 0.9}) {
    RoundLoop nova(Builtin("fednova"), Q4(), {.momentum = rho});
    RoundLoop fedavg(Builtin("fedavg"), Q4(), {.momentum = rho});
    ASSERT_TRUE(nova.Rounds(20).ok());
    ASSERT_TRUE(fedavg.Rounds(20).ok());
    EXPECT_LT(Distance(nova.Model(), fedavg.Model()), 1e-12);
  }
}

TEST(FedNova, ProximalWithEqualStepsIsFedProx) {
  RoundLoop nova(Builtin("fednova"), Q4(), {.parameters = {{"mu", .5}}});
  RoundLoop fedprox(Builtin("fedprox"), Q4(), {.parameters = {{"mu", .5}}});
  ASSERT_TRUE(nova.Rounds(20).ok());
  ASSERT_TRUE(fedprox.Rounds(20).ok());
  EXPECT_LT(Distance(nova.Model(), fedprox.Model()), 1e-12);
}

TEST(FedNova, OneRoundByHand) {
  // x₁ = τ_eff·Σ p_i (y_i − x)/‖a_i‖₁ with 1·2, 2·2, 3·2, 4·2 steps; the authors' τ_eff counts
  // steps.
  for (const std::string tau_eff : {"a_norm1", "steps"}) {
    RoundLoop loop(Builtin("fednova"), Q4(),
                   {.steps = 0, .epochs = 2, .parameters = {{"mu", .5}, {"tau_eff", tau_eff}}});
    ASSERT_TRUE(loop.Rounds(1).ok());
    Numbers direction(2);
    double tau = 0;
    for (size_t c = 0; c < 4; ++c) {
      const double p = static_cast<double>(c + 1) / 10;
      const int steps = 2 * static_cast<int>(c + 1);
      const double a = (1 - std::pow(1 - .05, steps)) / .05;
      tau += p * (tau_eff == "steps" ? steps : a);
      Numbers y(2);
      for (int k = 0; k < steps; ++k) {
        const Numbers g = Q4()[c].objective->Gradient(y);
        for (size_t i = 0; i < 2; ++i) y[i] -= .1 * (g[i] + .5 * y[i]);
      }
      for (size_t i = 0; i < 2; ++i) direction[i] += p * y[i] / a;
    }
    EXPECT_LT(Distance(loop.Model(), {tau * direction[0], tau * direction[1]}), 1e-14) << tau_eff;
  }
}

TEST(FedNova, TheServersMomentumIsOfTheNormalisedStep) {
  const auto of = [](double momentum, double server_lr = .5) {
    return RoundLoop(Builtin("fednova"), Q4(),
                     {.steps = 0,
                      .epochs = 2,
                      .parameters = {{"server_momentum", momentum}, {"server_lr", server_lr}}});
  };
  RoundLoop with = of(.8);
  Numbers x(2), m(2);
  for (int round = 0; round < 5; ++round) {
    // The step of a round without momentum, from the same x.
    RoundLoop without(Builtin("fednova"), Q4(), {.steps = 0, .epochs = 2, .start = x});
    ASSERT_TRUE(without.Rounds(1).ok());
    for (size_t i = 0; i < 2; ++i) {
      m[i] = .8 * m[i] + (without.Model()[i] - x[i]);
      x[i] += .5 * m[i];
    }
    ASSERT_TRUE(with.Rounds(1).ok());
    EXPECT_LT(Distance(with.Model(), x), 1e-13);
    EXPECT_LT(Distance(with.Saved("momentum"), m), 1e-13);
  }
}

TEST(FedNova, WithEqualStepsAndMomentumIsFedAvgM) {
  RoundLoop nova(Builtin("fednova"), Q4(), {.parameters = {{"server_momentum", .7}}});
  RoundLoop fedavgm(Builtin("fedavgm"), Q4(), {.parameters = {{"beta", .7}}});
  ASSERT_TRUE(nova.Rounds(20).ok());
  ASSERT_TRUE(fedavgm.Rounds(20).ok());
  EXPECT_LT(Distance(nova.Model(), fedavgm.Model()), 1e-11);
}

TEST(FedNova, GoesOnWithItsMomentumAfterAResume) {
  const RoundLoop::Options options = {.parameters = {{"server_momentum", .7}}};
  RoundLoop straight(Builtin("fednova"), Q4(), options);
  RoundLoop resumed(Builtin("fednova"), Q4(), options);
  ASSERT_TRUE(straight.Rounds(3).ok());
  ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
  ASSERT_TRUE(straight.Rounds(3).ok());
  ASSERT_TRUE(resumed.Rounds(3).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
}

// A checkpoint from before there was a momentum has none.
TEST(FedNova, KeepsNoMomentumWithoutOne) {
  RoundLoop loop(Builtin("fednova"), Q4(), {});
  EXPECT_FALSE(loop.server().Save().vectors.contains("momentum"));
}

TEST(FedNova, TakesTheMeanOfStatistics) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop(Builtin("fednova"), Q4(), {.steps = 2, .layout = layout});
  ASSERT_TRUE(loop.Rounds(1).ok());
  // 1 − .9² of the way to 1, 2, 3 and 4: only parameters are divided by the steps.
  EXPECT_NEAR(loop.server().Model().As<double>()[layout->Find("running_mean")->offset], .57, 1e-15);
}

TEST(FedNova, AClientWithoutStepsSendsNothingThatIsNotANumber) {
  RoundLoop loop(Builtin("fednova"), Q4(), {.steps = 0, .epochs = 0, .start = {1, 2}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.Model(), (Numbers{1, 2}));
}

}  // namespace
}  // namespace macaw::algorithms
