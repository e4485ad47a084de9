#include "cli/results/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace macaw::cli {
namespace {

constexpr double kConfidence = 0.95;
// What differences of doubles and their mean may be off, relative to the values.
constexpr double kRounding = 1e-13;

// The continued fraction of I_x(a, b), which converges fast for x < (a + 1) / (a + b + 2).
double Fraction(double a, double b, double x) {
  constexpr double kTiny = std::numeric_limits<double>::min() * 1e10;
  constexpr int kMost = 100'000;
  const auto kept_from_zero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / kept_from_zero(1 - (a + b) * x / (a + 1));
  double product = d;
  for (int m = 1; m <= kMost; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / kept_from_zero(1 + even * d);
    c = kept_from_zero(1 + even / c);
    product *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / kept_from_zero(1 + odd * d);
    c = kept_from_zero(1 + odd / c);
    product *= c * d;
    if (std::fabs(c * d - 1) < 4 * std::numeric_limits<double>::epsilon()) break;
  }
  return product;
}

// Of equal values their value, so that they have no deviation.
double MeanOf(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const double first = values.front();
  if (std::ranges::all_of(values, [&](double value) { return value == first; })) return first;
  const auto n = static_cast<double>(values.size());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  double mean = sum / n;
  if (!std::isfinite(sum)) {
    mean = 0;
    for (const double value : values) mean += value / n;
  }
  double left = 0;  // what rounding has left
  for (const double value : values) left += value - mean;
  return std::isfinite(left) ? mean + left / n : mean;
}

Interval Around(double mean, double std, size_t n) {
  const auto count = static_cast<double>(n);
  const double half = StudentQuantile(0.5 + kConfidence / 2, count - 1) * std / std::sqrt(count);
  return {.low = mean - half, .high = mean + half};
}

}  // namespace

double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double factor = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                 a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? factor * Fraction(a, b, x) / a
                                   : 1 - factor * Fraction(b, a, 1 - x) / b;
}

double StudentTwoSided(double t, double degrees) {
  return IncompleteBeta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double StudentQuantile(double p, double degrees) {
  if (p == 0.5) return 0;
  if (p < 0.5) return -StudentQuantile(1 - p, degrees);
  const double tail = 2 * (1 - p);
  double low = 0, high = 1;
  while (StudentTwoSided(high, degrees) > tail) high *= 2;
  // The tail decreases in t. Halving ends when no double lies between the two.
  for (double middle = high / 2; middle > low && middle < high; middle = low + (high - low) / 2) {
    (StudentTwoSided(middle, degrees) > tail ? low : high) = middle;
  }
  return high;
}

Estimate EstimateOf(const std::vector<double>& values) {
  Estimate estimate;
  estimate.n = values.size();
  const auto n = static_cast<double>(values.size());
  estimate.mean = MeanOf(values);
  if (values.size() < 2) return estimate;
  double squares = 0;
  for (const double value : values) {
    squares += (value - estimate.mean) * (value - estimate.mean);
  }
  estimate.std = std::sqrt(squares / (n - 1));
  estimate.interval = Around(estimate.mean, *estimate.std, values.size());
  return estimate;
}

PairedComparison CompareInPairs(const std::vector<double>& values,
                                const std::vector<double>& others) {
  std::vector<double> differences;
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    differences.push_back(values[i] - others[i]);
    largest = std::max({largest, std::fabs(values[i]), std::fabs(others[i])});
  }
  const double rounding = kRounding * largest;
  const Estimate estimate = EstimateOf(differences);
  PairedComparison paired;
  paired.n = estimate.n;
  paired.difference = std::fabs(estimate.mean) <= rounding ? 0 : estimate.mean;
  if (!estimate.std.has_value()) return paired;
  paired.same = *estimate.std <= rounding;
  if (paired.same) return paired;
  paired.interval = Around(paired.difference, *estimate.std, estimate.n);
  const double error = *estimate.std / std::sqrt(static_cast<double>(estimate.n));
  paired.p = StudentTwoSided(paired.difference / error, static_cast<double>(estimate.n) - 1);
  return paired;
}

std::vector<std::optional<double>> HolmAdjusted(const std::vector<std::optional<double>>& p) {
  std::vector<size_t> tests;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i].has_value()) tests.push_back(i);
  }
  std::ranges::stable_sort(tests, {}, [&](size_t i) { return *p[i]; });
  std::vector<std::optional<double>> adjusted(p.size());
  double largest = 0;  // the adjusted p grow with p
  for (size_t rank = 0; rank < tests.size(); ++rank) {
    const auto left = static_cast<double>(tests.size() - rank);
    largest = std::max(largest, std::min(1.0, left * *p[tests[rank]]));
    adjusted[tests[rank]] = largest;
  }
  return adjusted;
}

}  // namespace macaw::cli
