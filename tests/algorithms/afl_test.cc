#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

// By bisection for the threshold τ with Σ max(0, λ_i − τ) = 1.
Numbers Projected(const Numbers& lambda) {
  double low = -1e6, high = 1e6;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const double value : lambda) sum += std::max(0.0, value - middle);
    (sum > 1 ? low : high) = middle;
  }
  Numbers point;
  for (const double value : lambda) point.push_back(std::max(0.0, value - low));
  return point;
}

// Of one step with the rate 0.1 for x and 0.05 for λ.
struct ByHand {
  Numbers x = {1, -1};
  Numbers lambda = {.25, .25, .25, .25};

  void Round(const std::vector<size_t>& cohort) {
    const double factor = 4.0 / static_cast<double>(cohort.size());
    Numbers step(2), next = lambda;
    for (const size_t c : cohort) {
      const Numbers g = Q4()[c].objective->Gradient(x);
      for (size_t i = 0; i < 2; ++i) step[i] -= factor * lambda[c] * .1 * g[i];
      next[c] += .05 * factor * Q4()[c].objective->Loss(x);
    }
    for (size_t i = 0; i < 2; ++i) x[i] += step[i];
    lambda = Projected(next);
  }
};

TEST(Afl, RoundsByHand) {
  RoundLoop loop(Builtin("afl"), Q4(),
                 {.steps = 1, .parameters = {{"mixture_lr", .05}}, .start = {1, -1}});
  ByHand hand;
  Numbers sum = {0, 0};
  EXPECT_EQ(loop.Result(), hand.x);
  const std::vector<std::vector<size_t>> cohorts = {
      {0, 1, 2, 3}, {0, 1, 2, 3}, {2, 3}, {0, 3}, {1}};
  for (size_t round = 0; round < cohorts.size(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_TRUE(loop.Round(cohorts[round]).ok());
    hand.Round(cohorts[round]);
    EXPECT_LT(Distance(loop.Model(), hand.x), 1e-12);
    EXPECT_LT(Distance(loop.Saved("mixture"), hand.lambda), 1e-12);
    EXPECT_NEAR(loop.metrics().at("largest_weight"), *std::ranges::max_element(hand.lambda), 1e-12);
    for (size_t i = 0; i < 2; ++i) sum[i] += hand.x[i];
    const double iterates = static_cast<double>(round + 1);
    EXPECT_LT(Distance(loop.Result(), {sum[0] / iterates, sum[1] / iterates}), 1e-12);
  }
  EXPECT_EQ(*std::ranges::min_element(hand.lambda), 0) << "the projection should cut";
}

// The saddle point: no gradient of Σλ_i f_i, and λ only where the loss is largest.
TEST(Afl, EndsAtTheSaddlePoint) {
  RoundLoop loop(Builtin("afl"), Q4(),
                 {.steps = 1,
                  .parameters = {{"mixture_lr", .02}, {"evaluate", "x"}},
                  .start = {1, -1},
                  .lr = .02});
  ASSERT_TRUE(loop.Rounds(20000).ok());
  const Numbers x = loop.Model(), lambda = loop.Saved("mixture");
  EXPECT_EQ(loop.Result(), x);
  EXPECT_NEAR(std::accumulate(lambda.begin(), lambda.end(), 0.0), 1, 1e-12);
  Numbers gradient(2);
  double largest = 0;
  for (size_t c = 0; c < 4; ++c) {
    const Numbers g = Q4()[c].objective->Gradient(x);
    for (size_t i = 0; i < 2; ++i) gradient[i] += lambda[c] * g[i];
    largest = std::max(largest, Q4()[c].objective->Loss(x));
  }
  EXPECT_LT(Distance(gradient, {0, 0}), 1e-9);
  size_t support = 0;
  for (size_t c = 0; c < 4; ++c) {
    if (lambda[c] < 1e-9) continue;
    ++support;
    EXPECT_NEAR(Q4()[c].objective->Loss(x), largest, 1e-9) << c;
  }
  EXPECT_GE(support, 2u);
}

TEST(Afl, WithoutARateOfItsOwnIsThePlainMean) {
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 5;
  RoundLoop afl(Builtin("afl"), Q4(), {.parameters = {{"mixture_lr", 0.0}}});
  RoundLoop fedavg(Builtin("fedavg"), equal, {});
  ASSERT_TRUE(afl.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_LT(Distance(afl.Model(), fedavg.Model()), 1e-12);
}

}  // namespace
}  // namespace macaw::algorithms
