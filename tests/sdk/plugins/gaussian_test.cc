#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

// Its gradient is zero, so a model moves by the noise alone.
class Still final : public Objective {
 public:
  double Loss(const Numbers&) const override { return 0; }
  Numbers Gradient(const Numbers& w) const override { return Numbers(w.size()); }
};

RoundLoop Gaussian(size_t clients, uint64_t cohort, double noise, size_t numbers = 1,
                   uint64_t seed = 1) {
  const auto rule = OfPlugin(MACAW_PLUGIN_FILE, "gaussian");
  EXPECT_TRUE(rule.ok()) << rule.status();
  CohortConfig drawn;
  drawn.size = cohort;
  drawn.sampling = "poisson";
  drawn.weight = WeightPolicy::kUniform;
  return {*rule,
          std::vector<TestPopulationClient>(clients, {std::make_shared<Still>(), 1}),
          {.steps = 1,
           .parameters = {{"noise", noise}, {"update_clip", 0.5}},
           .start = Numbers(numbers),
           .cohort = drawn,
           .seed = seed}};
}

TEST(Gaussian, NoiseHasTheDeviationThatWasAskedForHoweverManyClientsCame) {
  for (const std::vector<size_t>& came : {std::vector<size_t>{0, 3}, {}, {0, 1, 2, 3, 4, 5}}) {
    RoundLoop loop = Gaussian(10, 4, 3, 40000);
    ASSERT_TRUE(loop.Round(came).ok());
    double sum = 0, square = 0, beyond = 0;
    const double expected = 3 * 0.5 / 4;  // z·C/(q·N)
    for (const double x : loop.Model()) {
      sum += x;
      square += x * x;
      beyond += std::fabs(x) > 2 * expected ? 1 : 0;
    }
    EXPECT_NEAR(sum / 40000, 0, 5 * expected / 200);
    EXPECT_NEAR(std::sqrt(square / 40000), expected, 0.02 * expected);
    EXPECT_NEAR(beyond / 40000, 0.0455, 0.006) << "of a normal distribution, beyond 2σ";
  }
}

TEST(Gaussian, NoiseIsAnotherInEachRoundAndRunAndTheSameInARepeatedOne) {
  RoundLoop one = Gaussian(10, 4, 1, 100), same = Gaussian(10, 4, 1, 100),
            other = Gaussian(10, 4, 1, 100, /*seed=*/2);
  for (RoundLoop* loop : {&one, &same, &other}) ASSERT_TRUE(loop->Round({}).ok());
  EXPECT_EQ(one.ModelDigest(), same.ModelDigest());
  EXPECT_NE(one.ModelDigest(), other.ModelDigest());
  const Numbers first = one.Model();
  ASSERT_TRUE(one.Round({}).ok());
  Numbers second = one.Model();
  for (size_t i = 0; i < second.size(); ++i) second[i] -= first[i];
  EXPECT_GT(Distance(first, second), 0.01);
}

// Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, section 3.2: q = 0.01, σ = 4,
// δ = 1e-5, 10,000 steps give ε = 1.26 by the moments accountant.
TEST(Gaussian, EpsilonIsThePublishedOne) {
  RoundLoop loop = Gaussian(100, 1, 4);
  for (int round = 0; round < 10000; ++round) ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_NEAR(loop.metrics().at("epsilon"), 1.26, 0.005);
}

// One round without sampling is the Gaussian mechanism: ε = min_α α/(2z²) + ln(1/δ)/(α−1). With the
// real α = 1 + z·√(2·ln(1/δ)) that is 1/(2z²) + √(2·ln(1/δ))/z; whole orders come near from above.
TEST(Gaussian, EpsilonWithoutSamplingIsTheGaussianMechanisms) {
  for (const double z : {1.0, 4.0, 10.0}) {
    RoundLoop loop = Gaussian(4, 4, z);
    ASSERT_TRUE(loop.Round({}).ok());
    const double exact = 1 / (2 * z * z) + std::sqrt(2 * std::log(1e5)) / z;
    EXPECT_GE(loop.metrics().at("epsilon"), exact - 1e-12);
    EXPECT_LT(loop.metrics().at("epsilon"), exact * 1.01);
  }
}

}  // namespace
}  // namespace macaw::algorithms
