#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;
using Parameters = std::map<std::string, ParameterValue>;

RoundLoop Make(const std::string& name, const std::string& base, Options options = {}) {
  options.parameters["base"] = base;
  return {Builtin(name), Q4(), options};
}

Numbers MeanGradient(const Numbers& x) {
  Numbers mean(2);
  for (size_t c = 0; c < 4; ++c) {
    const Numbers g = Q4()[c].objective->Gradient(x);
    for (size_t i = 0; i < 2; ++i) mean[i] += static_cast<double>(c + 1) / 10 * g[i];
  }
  return mean;
}

TEST(Mime, ReachesTheOptimum) {
  RoundLoop loop = Make("mime", "sgd");
  ASSERT_TRUE(loop.Rounds(4000).ok());
  EXPECT_LT(Distance(loop.Model(), Q4Optimum()), 1e-14);
}

TEST(Mime, DoesNotSettleThereOnHalfTheClients) {
  RoundLoop loop = Make("mime", "sgd");
  ASSERT_TRUE(loop.SampledRounds(4000, 2).ok());
  EXPECT_GT(Distance(loop.Model(), Q4Optimum()), 1e-3);
}

TEST(Mime, WithOneStepIsGradientDescent) {
  RoundLoop mime = Make("mime", "sgd", {.steps = 1});
  RoundLoop descent(Builtin("fedavg"), Q4(), {.steps = 1});
  ASSERT_TRUE(mime.Rounds(10).ok());
  ASSERT_TRUE(descent.Rounds(10).ok());
  EXPECT_LT(Distance(mime.Model(), descent.Model()), 1e-14);
}

TEST(MimeLite, WithOneStepIsFedAvg) {
  RoundLoop lite = Make("mimelite", "sgd", {.steps = 1});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.steps = 1});
  ASSERT_TRUE(lite.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_LT(Distance(lite.Model(), fedavg.Model()), 1e-15);
}

// Two rounds of two steps, written out: the gradient at x updates s, and s is fixed during the
// round.
TEST(Mime, BasesByHand) {
  for (const std::string name : {"mime", "mimelite"}) {
    for (const std::string base : {"sgd", "momentum", "adam"}) {
      const double decay = .05, b1 = .8, b2 = .9, epsilon = .5, eta = .1;
      RoundLoop loop = Make(name, base,
                            {.steps = 2,
                             .parameters = {{"beta1", b1}, {"beta2", b2}, {"epsilon", epsilon}},
                             .start = {1, -1},
                             .weight_decay = decay});
      Numbers x = {1, -1}, m(2), v(2);
      for (int round = 1; round <= 2; ++round) {
        Numbers c = MeanGradient(x);
        for (size_t i = 0; i < 2; ++i) c[i] += decay * x[i];
        Numbers delta(2);
        for (size_t client = 0; client < 4; ++client) {
          const Numbers at_x = Q4()[client].objective->Gradient(x);
          Numbers y = x;
          for (int step = 0; step < 2; ++step) {
            Numbers d = Q4()[client].objective->Gradient(y);
            for (size_t i = 0; i < 2; ++i) {
              d[i] += decay * y[i];
              if (name == "mime") d[i] += c[i] - at_x[i] - decay * x[i];
              if (base != "sgd") d[i] = (1 - b1) * d[i] + b1 * m[i];
              if (base == "adam") d[i] /= epsilon + std::sqrt(v[i]);
              y[i] -= eta * d[i];
            }
          }
          for (size_t i = 0; i < 2; ++i)
            delta[i] += static_cast<double>(client + 1) / 10 * (y[i] - x[i]);
        }
        for (size_t i = 0; i < 2; ++i) {
          x[i] += delta[i];
          m[i] = (1 - b1) * c[i] + b1 * m[i];
          v[i] = (1 - b2) * c[i] * c[i] + b2 * v[i];
        }
        ASSERT_TRUE(loop.Rounds(1).ok());
        EXPECT_LT(Distance(loop.Model(), x), 1e-14) << name << " " << base << " round " << round;
        if (base != "sgd") {
          EXPECT_LT(Distance(loop.Saved("m"), m), 1e-14);
        }
        if (base == "adam") {
          EXPECT_LT(Distance(loop.Saved("v"), v), 1e-14);
        }
      }
    }
  }
}

TEST(MimeLite, TakesOnePhaseAndAGradientOnlyWhereItsBaseWantsOne) {
  for (const std::string base : {"sgd", "momentum", "adam"}) {
    const Options options = {.parameters = {{"epsilon", .5}}};
    RoundLoop lite = Make("mimelite", base, options), mime = Make("mime", base, options);
    ASSERT_TRUE(lite.Rounds(1).ok());
    ASSERT_TRUE(mime.Rounds(1).ok());
    EXPECT_EQ(lite.phases(), 1) << base;
    EXPECT_EQ(mime.phases(), 2) << base;
    EXPECT_EQ(lite.schema().up.size(), base == "sgd" ? 1u : 2u);
    // The server alone knows c.
    EXPECT_EQ(lite.schema().down.size(), mime.schema().down.size() - 1);
  }
}

TEST(Mime, MovesNothingWithoutClients) {
  for (const std::string base : {"sgd", "momentum"}) {
    RoundLoop loop = Make("mime", base, {.start = {1, 2}});
    ASSERT_TRUE(loop.Rounds(1).ok());
    const Digest before = loop.ModelDigest();
    const Numbers moment = base == "momentum" ? loop.Saved("m") : Numbers{};
    ASSERT_TRUE(loop.Round({}).ok());
    EXPECT_EQ(loop.ModelDigest(), before);
    if (base == "momentum") {
      EXPECT_EQ(loop.Saved("m"), moment);
    }
  }
}

TEST(Mime, RunsInSinglePrecision) {
  RoundLoop loop = Make("mime", "sgd", {.dtype = DType::kF32});
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_LT(Distance(loop.Model(), Q4Optimum()), 5e-6);
}

}  // namespace
}  // namespace macaw::algorithms
