#include "cli/results/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace macaw::cli {
namespace {

TEST(SweepStatistics, TheIncompleteBetaFunctionHasItsClosedForms) {
  for (const double x : {0.0, 1e-6, 0.1, 0.25, 0.5, 0.9, 0.999, 1.0}) {
    EXPECT_NEAR(IncompleteBeta(1, 4, x), 1 - std::pow(1 - x, 4), 1e-14) << x;
    EXPECT_NEAR(IncompleteBeta(2, 3, x), x * x * (6 - 8 * x + 3 * x * x), 1e-14) << x;
    EXPECT_NEAR(IncompleteBeta(0.5, 0.5, x), 2 / std::numbers::pi * std::asin(std::sqrt(x)), 1e-13)
        << x;
    EXPECT_NEAR(IncompleteBeta(3.5, 0.5, x) + IncompleteBeta(0.5, 3.5, 1 - x), 1, 1e-13) << x;
  }
  EXPECT_NEAR(IncompleteBeta(500, 500, 0.5), 0.5, 1e-12);
}

// With one degree of freedom this is Cauchy's distribution; with two it has a closed form, too.
TEST(SweepStatistics, StudentsTailsHaveTheirClosedForms) {
  for (const double t : {0.0, 0.01, 0.5, 1.0, 2.0, 12.0, 1e4}) {
    EXPECT_NEAR(StudentTwoSided(t, 1), 1 - 2 / std::numbers::pi * std::atan(t), 1e-13) << t;
    EXPECT_NEAR(StudentTwoSided(-t, 2), 1 - t / std::sqrt(2 + t * t), 1e-13) << t;
  }
}

// The usual table: degrees of freedom, P(T <= t), t.
TEST(SweepStatistics, StudentsQuantilesAreThoseOfTheTable) {
  const double table[][3] = {
      {1, 0.975, 12.7062047361747}, {2, 0.975, 4.30265272974946},  {4, 0.975, 2.77644510519779},
      {9, 0.975, 2.26215716279820}, {29, 0.975, 2.04522964213270}, {1000, 0.975, 1.96233908082641},
      {5, 0.95, 2.01504837333302},  {3, 0.995, 5.84090930973335},  {10, 0.5, 0},
      {9, 0.025, -2.26215716279820}};
  for (const auto& [degrees, p, t] : table) {
    EXPECT_NEAR(StudentQuantile(p, degrees), t, 1e-11 * std::max(1.0, std::fabs(t)))
        << degrees << " degrees, p = " << p;
  }
}

TEST(SweepStatistics, EstimatesMeanDeviationAndInterval) {
  const Estimate estimate = EstimateOf({1, 2, 3, 4});
  EXPECT_EQ(estimate.n, 4u);
  EXPECT_DOUBLE_EQ(estimate.mean, 2.5);
  EXPECT_DOUBLE_EQ(estimate.std.value(), std::sqrt(5.0 / 3));
  // t(0.975; 3) = 3.182446305284263
  const double half = 3.182446305284263 * std::sqrt(5.0 / 3) / 2;
  EXPECT_NEAR(estimate.interval.value().low, 2.5 - half, 1e-12);
  EXPECT_NEAR(estimate.interval.value().high, 2.5 + half, 1e-12);
}

TEST(SweepStatistics, EqualValuesAreTheirMeanAndDoNotDeviate) {
  for (const double value : {0.1, 0.87, 1.0 / 3, -1e300, 1.7e308, 5e-324}) {
    for (const size_t n : {2, 3, 5, 6, 7, 10, 49}) {
      const Estimate estimate = EstimateOf(std::vector<double>(n, value));
      EXPECT_EQ(estimate.mean, value) << n;
      EXPECT_EQ(estimate.std.value(), 0) << value << " " << n;
      EXPECT_EQ(estimate.interval.value().high, value) << n;
    }
  }
}

TEST(SweepStatistics, AMeanIsThatOfTheNumbersAndOfLargeOnes) {
  EXPECT_EQ(EstimateOf({0.5, 0.25, 0.75, 1, 0, 0.5}).mean, 0.5);
  EXPECT_EQ(EstimateOf({1e16, 3, 3, 3, 3, 3}).mean, 1666666666666669.25) << "the nearest";
  EXPECT_EQ(EstimateOf({1.7e308, -1.7e308, 1e308, 1e308}).mean, 0.5e308);
  EXPECT_EQ(EstimateOf({1.5e308, 1.7e308}).mean, 1.6e308);
  EXPECT_TRUE(std::isnan(EstimateOf({1, std::nan(""), 1}).mean));
}

TEST(SweepStatistics, OneValueHasNoDeviation) {
  const Estimate estimate = EstimateOf({0.5});
  EXPECT_EQ(estimate.mean, 0.5);
  EXPECT_FALSE(estimate.std.has_value());
  EXPECT_FALSE(estimate.interval.has_value());
  EXPECT_EQ(EstimateOf({}).n, 0u);
}

// Student's own example (1908): hours of sleep gained by two drugs, ten patients.
TEST(SweepStatistics, ComparesPairsAsStudentDid) {
  const PairedComparison paired =
      CompareInPairs({0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0},
                     {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4});
  EXPECT_EQ(paired.n, 10u);
  EXPECT_NEAR(paired.difference, -1.58, 1e-12);
  EXPECT_NEAR(paired.interval.value().low, -2.4598858, 1e-7);
  EXPECT_NEAR(paired.interval.value().high, -0.7001142, 1e-7);
  EXPECT_NEAR(paired.p.value(), 0.00283289, 1e-8);
}

// Accuracies of small test sets are often equally far apart. Student's t is a quotient by their
// deviation, which is 0 then, or what rounding has left.
TEST(SweepStatistics, EqualDifferencesHaveNoTest) {
  for (const PairedComparison& paired :
       {CompareInPairs({1, 2}, {1, 2}), CompareInPairs({2, 3}, {1, 2}),
        CompareInPairs({5 / 12., 0.5}, {0.5, 7 / 12.}),
        CompareInPairs({0.4167, 0.5, 0.3}, {0.5, 0.5833, 0.3833})}) {
    EXPECT_FALSE(paired.p.has_value()) << paired.difference << " p " << *paired.p;
    EXPECT_FALSE(paired.interval.has_value()) << paired.difference;
    EXPECT_TRUE(paired.same) << paired.difference;
  }
  const PairedComparison single = CompareInPairs({2}, {1});
  EXPECT_FALSE(single.p.has_value());
  EXPECT_FALSE(single.same);
  EXPECT_FALSE(CompareInPairs({0.5, 0.6}, {0.5, 0.600001}).same);
}

TEST(SweepStatistics, EqualMeansDifferByNothing) {
  const PairedComparison paired = CompareInPairs({0.1, 0.2, 0.3}, {0.3, 0.1, 0.2});
  EXPECT_EQ(paired.difference, 0);
  EXPECT_EQ(paired.p, 1);
  EXPECT_EQ(CompareInPairs({1 / 3., 0.1 + 0.2}, {1 / 3., 0.3}).difference, 0);
}

// As R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
TEST(SweepStatistics, HolmsCorrectionHoldsForAllTestsTogether) {
  const auto adjusted = HolmAdjusted({0.01, std::nullopt, 0.04, 0.03, 0.005});
  ASSERT_EQ(adjusted.size(), 5u);
  EXPECT_DOUBLE_EQ(adjusted[0].value(), 0.03);
  EXPECT_FALSE(adjusted[1].has_value()) << "no test";
  EXPECT_DOUBLE_EQ(adjusted[2].value(), 0.06);
  EXPECT_DOUBLE_EQ(adjusted[3].value(), 0.06);
  EXPECT_DOUBLE_EQ(adjusted[4].value(), 0.02);
  EXPECT_EQ(HolmAdjusted({0.6, 0.7})[0], 1) << "a probability";
  EXPECT_EQ(HolmAdjusted({0.3})[0], 0.3) << "one test is as it is";
}

}  // namespace
}  // namespace macaw::cli
