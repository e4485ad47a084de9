#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

TEST(QFedAvg, OneRoundByHand) {
  for (const double q : {0.5, 1.0, 2.0}) {
    RoundLoop loop(Builtin("qfedavg"), Q4(), {.parameters = {{"q", q}}, .start = {1, -1}});
    const Numbers x = {1, -1};
    const double l = 1 / .1;
    Numbers numerator(2);
    double denominator = 0;
    for (size_t c = 0; c < 4; ++c) {
      const double f = Q4()[c].objective->Loss(x) + 1e-10;
      Numbers y = x;
      for (int k = 0; k < 7; ++k) {
        const Numbers g = Q4()[c].objective->Gradient(y);
        for (size_t i = 0; i < 2; ++i) y[i] -= .1 * g[i];
      }
      double square = 0;
      for (size_t i = 0; i < 2; ++i) {
        numerator[i] += std::pow(f, q) * l * (x[i] - y[i]);
        square += l * (x[i] - y[i]) * l * (x[i] - y[i]);
      }
      denominator += q * std::pow(f, q - 1) * square + l * std::pow(f, q);
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(
        Distance(loop.Model(), {1 - numerator[0] / denominator, -1 - numerator[1] / denominator}),
        1e-13)
        << q;
  }
}

TEST(QFedAvg, WithoutFairnessIsTheUniformMean) {
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 5;
  RoundLoop q(Builtin("qfedavg"), Q4(), {.parameters = {{"q", 0.0}}});
  RoundLoop fedavg(Builtin("fedavg"), equal, {});
  ASSERT_TRUE(q.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_LT(Distance(q.Model(), fedavg.Model()), 1e-12);
}

TEST(QFedAvg, EvensOutTheLosses) {
  const auto worst = [](double q) {
    RoundLoop loop(Builtin("qfedavg"), Q4(),
                   {.steps = 1, .parameters = {{"q", q}}, .start = {.3, 2.4}});
    EXPECT_TRUE(loop.Rounds(3000).ok());
    double largest = 0;
    for (const TestPopulationClient& client : Q4())
      largest = std::max(largest, client.objective->Loss(loop.Model()));
    return largest;
  };
  EXPECT_LT(worst(1), worst(0));
  EXPECT_LT(worst(3), worst(1));
}

TEST(QFedAvg, TakesThePlainMeanOfStatistics) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop(Builtin("qfedavg"), Q4(), {.steps = 1, .layout = layout});
  ASSERT_TRUE(loop.Rounds(1).ok());
  // Statistics move a tenth of the way to 1, 2, 3 and 4, whatever the losses.
  EXPECT_NEAR(loop.server().Model().As<double>()[layout->Find("running_mean")->offset], .25, 1e-15);
}

TEST(QFedAvg, SurvivesALossOfZero) {
  // All clients at their common minimum: F = 0, and 0^(q−1) would be infinite.
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{1, 2});
  RoundLoop loop(Builtin("qfedavg"), {{f, 1}, {f, 1}},
                 {.parameters = {{"q", 0.5}}, .start = {1, 2}});
  ASSERT_TRUE(loop.Rounds(3).ok());
  EXPECT_EQ(loop.Model(), (Numbers{1, 2}));
}

}  // namespace
}  // namespace macaw::algorithms
