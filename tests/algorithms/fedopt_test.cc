#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Parameters = std::map<std::string, ParameterValue>;

// f(w) = −d·w: with one step and a learning rate of 1 the update is d at any point.
class Linear final : public Objective {
 public:
  explicit Linear(Numbers d) : d_(std::move(d)) {}
  double Loss(const Numbers& w) const override { return -d_[0] * w[0] - d_[1] * w[1]; }
  Numbers Gradient(const Numbers&) const override { return {-d_[0], -d_[1]}; }

 private:
  const Numbers d_;
};

constexpr double kD[] = {0.5, -0.02};

RoundLoop Constant(const std::string& name, Parameters parameters) {
  return {Builtin(name),
          {{std::make_shared<Linear>(Numbers{kD[0], kD[1]}), 1}},
          {.steps = 1, .parameters = std::move(parameters), .lr = 1}};
}

TEST(FedOpt, MomentsOfAConstantUpdateMatchTheFormula) {
  RoundLoop adam = Constant("fedadam", {});
  RoundLoop adagrad = Constant("fedadagrad", {});
  for (int t = 1; t <= 20; ++t) {
    ASSERT_TRUE(adam.Rounds(1).ok());
    ASSERT_TRUE(adagrad.Rounds(1).ok());
    for (size_t i = 0; i < 2; ++i) {
      const double d = kD[i];
      EXPECT_NEAR(adam.Saved("m")[i], (1 - std::pow(.9, t)) * d, 1e-15);
      EXPECT_NEAR(adam.Saved("v")[i], std::pow(.99, t) * 1e-6 + (1 - std::pow(.99, t)) * d * d,
                  1e-15);
      EXPECT_NEAR(adagrad.Saved("m")[i], d, 1e-15);
      EXPECT_NEAR(adagrad.Saved("v")[i], 1e-6 + t * d * d, 1e-14);
    }
  }
}

// Three rounds by hand for each rule, with different rates, so that no two rules can be confused.
TEST(FedOpt, StepsByHand) {
  for (const std::string name : {"fedadagrad", "fedadam", "fedyogi"}) {
    const double b1 = name == "fedadagrad" ? 0 : .9, b2 = .99, tau = 1e-2;
    RoundLoop loop = Constant(name, {{"server_lr", .3}, {"tau", tau}});
    for (size_t i = 0; i < 2; ++i) {
      RoundLoop fresh = Constant(name, {{"server_lr", .3}, {"tau", tau}});
      const double d = kD[i];
      double x = 0, m = 0, v = tau * tau;
      for (int t = 0; t < 3; ++t) {
        m = b1 * m + (1 - b1) * d;
        if (name == "fedadagrad") v += d * d;
        if (name == "fedadam") v = b2 * v + (1 - b2) * d * d;
        if (name == "fedyogi") v -= (1 - b2) * d * d * (v > d * d ? 1 : v < d * d ? -1 : 0);
        x += .3 * m / (std::sqrt(v) + tau);
        ASSERT_TRUE(fresh.Rounds(1).ok());
        EXPECT_NEAR(fresh.Model()[i], x, 1e-14) << name << " round " << t + 1;
      }
    }
  }
}

TEST(FedOpt, YogiForgetsSlowerThanAdamOnceUpdatesShrink) {
  // v far above Δ̄²: Yogi takes off (1−β₂)Δ̄², Adam a hundredth of v.
  RoundLoop yogi = Constant("fedyogi", {{"v_init", 4.0}});
  RoundLoop adam = Constant("fedadam", {{"v_init", 4.0}});
  ASSERT_TRUE(yogi.Rounds(1).ok());
  ASSERT_TRUE(adam.Rounds(1).ok());
  EXPECT_NEAR(yogi.Saved("v")[0], 4 - .01 * .25, 1e-15);
  EXPECT_NEAR(adam.Saved("v")[0], 4 * .99 + .01 * .25, 1e-15);
}

TEST(FedOpt, BiasCorrectionMakesTheFirstStepsAsLongAsTheRate) {
  // Keras' Adam from v = 0 on a constant gradient: m̂ = d, v̂ = d², so a step is η_g·d/(|d| + τ).
  RoundLoop loop = Constant(
      "fedadam", {{"server_lr", .1}, {"v_init", 0.0}, {"bias_correction", true}, {"tau", 1e-9}});
  for (int t = 1; t <= 10; ++t) {
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(Distance(loop.Model(), {.1 * t, -.1 * t}), 1e-7);
  }
}

TEST(FedOpt, BiasCorrectionGoesOnCountingAfterAResume) {
  const Parameters keras = {{"v_init", 0.0}, {"bias_correction", true}};
  RoundLoop straight = Constant("fedadam", keras), resumed = Constant("fedadam", keras);
  ASSERT_TRUE(straight.Rounds(3).ok());
  ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
  ASSERT_TRUE(straight.Rounds(1).ok());
  ASSERT_TRUE(resumed.Rounds(1).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
}

TEST(FedOpt, ReachesTheOptimumOfOneStepClients) {
  for (const std::string name : {"fedadagrad", "fedadam", "fedyogi"}) {
    // Adagrad's steps become shorter by themselves.
    const std::string schedule = name == "fedadagrad" ? "constant" : "exponential gamma 0.99";
    const double rate = name == "fedadagrad" ? 1 : .05;
    RoundLoop loop(
        Builtin(name), Q4(),
        {.steps = 1, .parameters = {{"server_lr", rate}, {"server_lr_schedule", schedule}}});
    ASSERT_TRUE(loop.Rounds(2000).ok());
    EXPECT_LT(Distance(loop.Model(), Q4Optimum()), 0.02) << name;
  }
}

TEST(FedAvgM, AddsUpMomentum) {
  RoundLoop loop = Constant("fedavgm", {{"beta", .5}, {"server_lr", .1}});
  ASSERT_TRUE(loop.Rounds(3).ok());  // m = d, 1.5d, 1.75d
  EXPECT_LT(Distance(loop.Saved("m"), {1.75 * kD[0], 1.75 * kD[1]}), 1e-16);
  EXPECT_LT(Distance(loop.Model(), {.425 * kD[0], .425 * kD[1]}), 1e-16);
}

// Σ/(q·W) of no clients is 0, and the formulas continue from there.
TEST(FedAvgM, GoesOnByItsMomentumWhenAPoissonCohortIsEmpty) {
  RoundLoop loop(Builtin("fedavgm"), Q4(),
                 {.steps = 1,
                  .parameters = {{"beta", .5}, {"server_lr", .1}},
                  .cohort = {.size = 4, .sampling = "poisson"}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  const Numbers m = loop.Saved("m"), x = loop.Model();
  ASSERT_GT(Distance(m, {0, 0}), .01);
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_LT(Distance(loop.Saved("m"), {.5 * m[0], .5 * m[1]}), 1e-16);
  EXPECT_LT(Distance(loop.Model(), {x[0] + .05 * m[0], x[1] + .05 * m[1]}), 1e-16);
  // A round whose clients are all lost counts like a round with an empty cohort.
  ASSERT_TRUE(loop.Round({2}, {2}).ok());
  EXPECT_LT(Distance(loop.Saved("m"), {.25 * m[0], .25 * m[1]}), 1e-16);
}

TEST(FedOpt, CountsAnEmptyPoissonCohortAsAnUpdateOfZero) {
  RoundLoop loop(Builtin("fedadam"), Q4(),
                 {.steps = 1, .cohort = {.size = 4, .sampling = "poisson"}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  const Numbers m = loop.Saved("m"), v = loop.Saved("v"), x = loop.Model();
  ASSERT_TRUE(loop.Round({}).ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(loop.Saved("m")[i], .9 * m[i], 1e-16);
    EXPECT_NEAR(loop.Saved("v")[i], .99 * v[i], 1e-16);
    EXPECT_NEAR(loop.Model()[i], x[i] + .1 * .9 * m[i] / (std::sqrt(.99 * v[i]) + 1e-3), 1e-15);
  }
  // FedAvg has nothing to go on by.
  RoundLoop plain(Builtin("fedavg"), Q4(), {.cohort = {.size = 4, .sampling = "poisson"}});
  ASSERT_TRUE(plain.Rounds(1).ok());
  const Digest before = plain.ModelDigest();
  ASSERT_TRUE(plain.Round({}).ok());
  EXPECT_EQ(plain.ModelDigest(), before);
}

TEST(FedAvgM, WithoutMomentumIsFedAvgBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop momentum(Builtin("fedavgm"), Q4(), {.parameters = {{"beta", 0.0}}, .dtype = dtype});
    RoundLoop fedavg(Builtin("fedavg"), Q4(), {.dtype = dtype});
    ASSERT_TRUE(momentum.Rounds(10).ok());
    ASSERT_TRUE(fedavg.Rounds(10).ok());
    EXPECT_EQ(momentum.ModelDigest(), fedavg.ModelDigest());
  }
}

TEST(FedOpt, MovesBuffersByTheirMeanAndNotAdaptively) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_var", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  for (const std::string name : {"fedadam", "fedyogi", "fedadagrad", "fedavgm", "fednova"}) {
    RoundLoop loop(Builtin(name), Q4(), {.steps = 1, .layout = layout});
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_NEAR(loop.server().Model().As<double>()[layout->Find("running_var")->offset], .3, 1e-15)
        << name;
  }
}

}  // namespace
}  // namespace macaw::algorithms
