#include "algorithms/around/accountant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace macaw::algorithms {
namespace {

// Google's dp_accounting 0.6 (PLDAccountant, RdpAccountant) on the same mechanisms, 2026-11-25.
struct Published {
  double q, z;
  uint64_t rounds;
  double delta, pld, rdp;
};
constexpr Published kPublished[] = {
    {0.01, 4, 10000, 1e-5, 0.946999, 1.035490}, {0.01, 1, 1000, 1e-6, 2.124515, 2.436694},
    {0.1, 2, 200, 1e-5, 3.359660, 3.679746},    {0.001, 0.6, 5000, 1e-7, 3.437341, 4.267038},
    {1, 5, 50, 1e-5, 6.572970, 7.077392},       {0.05, 0.5, 100, 1e-6, 20.988813, 23.884952}};

TEST(Accountant, GivesWhatOthersPublish) {
  for (const Published& p : kPublished) {
    SCOPED_TRACE(testing::Message() << "q " << p.q << ", z " << p.z << ", " << p.rounds);
    const Accountant accountant(p.q, p.z);
    const double epsilon = accountant.Epsilon(p.rounds, p.delta);
    EXPECT_GE(epsilon, p.pld * (1 - 1e-3));  // theirs is an upper bound, too
    EXPECT_LE(epsilon, p.pld * 1.01);
    // They leave orders out whose series does not converge.
    EXPECT_LE(accountant.RenyiEpsilon(static_cast<double>(p.rounds), p.delta), p.rdp * (1 + 1e-5));
    EXPECT_GE(accountant.RenyiEpsilon(static_cast<double>(p.rounds), p.delta), p.rdp * 0.99);
  }
}

// δ of the Gaussian mechanism at ε, exactly: Balle and Wang, "Improving the Gaussian Mechanism for
// Differential Privacy", 2018, theorem 5. Without sampling, k rounds are one with z/√k.
double DeltaOf(double epsilon, double z) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  return below(0.5 / z - epsilon * z) - std::exp(epsilon) * below(-0.5 / z - epsilon * z);
}

TEST(Accountant, IsJustAboveTheExactOneWithoutSampling) {
  for (const double z : {0.7, 3.0, 40.0}) {
    for (const uint64_t rounds : {1, 7, 40}) {
      const double delta = 1e-6, together = z / std::sqrt(static_cast<double>(rounds));
      const double epsilon = Accountant(1, z).Epsilon(rounds, delta);
      SCOPED_TRACE(testing::Message() << "z " << z << ", " << rounds << ": " << epsilon);
      EXPECT_LE(DeltaOf(epsilon, together), delta);
      EXPECT_GT(DeltaOf(epsilon * 0.985, together), delta);
    }
  }
}

// Where δ is so small that what rounding adds to it in many rounds would count.
TEST(Accountant, IsAboveTheExactOneAndMonotoneForSmallDeltasOfManyRounds) {
  for (const uint64_t rounds : {10000, 100000}) {
    for (const double together : {0.35, 0.5, 1.0}) {
      const Accountant accountant(1, together * std::sqrt(static_cast<double>(rounds)));
      double last = 0;
      for (double delta = 1e-9; delta > 0.9e-14; delta /= std::sqrt(10)) {
        const double epsilon = accountant.Epsilon(rounds, delta);
        SCOPED_TRACE(testing::Message()
                     << rounds << ", " << together << ", " << delta << ": " << epsilon);
        EXPECT_LE(DeltaOf(epsilon, together), delta);
        EXPECT_GE(epsilon, last);
        last = epsilon;
      }
    }
  }
}

TEST(Accountant, GrowsWithRoundsAndSamplingAndFallsWithNoiseAndDelta) {
  const auto epsilon = [](double q, double z, uint64_t rounds, double delta) {
    return Accountant(q, z).Epsilon(rounds, delta);
  };
  const double middle = epsilon(0.02, 1.2, 100, 1e-6);
  EXPECT_GT(epsilon(0.02, 1.2, 200, 1e-6), middle);
  EXPECT_GT(epsilon(0.04, 1.2, 100, 1e-6), middle);
  EXPECT_GT(epsilon(0.02, 1.0, 100, 1e-6), middle);
  EXPECT_GT(epsilon(0.02, 1.2, 100, 1e-7), middle);
  EXPECT_EQ(epsilon(0.02, 1.2, 0, 1e-6), 0);
  EXPECT_EQ(epsilon(1e-6, 5, 10, 1e-3), 0);  // δ is more than the chance to be drawn at all
}

TEST(Accountant, AnswersWhereThereIsHardlyAnyNoise) {
  for (const double z : {1e-9, 1e-3, 0.049, 0.05}) {
    EXPECT_GT(Accountant(0.1, z).Epsilon(100, 1e-6), 100) << z;
    EXPECT_GT(Accountant(1, z).Epsilon(1, 1e-6), 100) << z;
  }
}

TEST(NoiseFor, IsTheLeastThatIsEnough) {
  for (const double epsilon : {0.5, 2.0, 20.0}) {
    const double z = NoiseFor(epsilon, 1e-6, 0.01, 500);
    SCOPED_TRACE(z);
    EXPECT_LE(Accountant(0.01, z).Epsilon(500, 1e-6), epsilon);
    EXPECT_GT(Accountant(0.01, z * 0.97).Epsilon(500, 1e-6), epsilon);
  }
  // Where Rényi's bound is far too high.
  const double z = NoiseFor(0.01, 1e-3, 0.01, 1);
  EXPECT_GT(Accountant(0.01, z * 0.94).Epsilon(1, 1e-3), 0.01);
  // Where the conversion of Rényi's bound costs more than ε itself, but for orders of thousands.
  const double enough = NoiseFor(0.002, 1e-5, 0.1, 100);
  ASSERT_LT(enough, 10000);
  EXPECT_LE(Accountant(0.1, enough).Epsilon(100, 1e-5), 0.002);
  EXPECT_GT(Accountant(0.1, enough * 0.8).Epsilon(100, 1e-5), 0.002);
  EXPECT_TRUE(std::isinf(NoiseFor(1e-9, 1e-12, 1, 1000000)));
}

}  // namespace
}  // namespace macaw::algorithms
