#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace macaw::cli {

// The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]: the continued
// fraction of DLMF 8.17.22, evaluated by Lentz's method. The relative error is about 1e-14 where a
// and b are small, and grows with them: 1e-12 at 1000 degrees of freedom, 2e-10 at 1e5.
double IncompleteBeta(double a, double b, double x);

// Student's t with so many degrees of freedom (> 0).
double StudentTwoSided(double t, double degrees);  // P(|T| >= |t|)
double StudentQuantile(double p, double degrees);  // the x with P(T <= x) = p, for p in (0, 1)

// A closed interval that contains the true mean in 95 of 100 repetitions, if the values are normal.
struct Interval {
  double low = 0, high = 0;
};

// Mean and deviation (of a sample: n - 1) of some values. All tables and files that give a
// deviation take it from here; one value has none.
struct Estimate {
  size_t n = 0;
  double mean = 0;
  std::optional<double> std;  // two values or more
  std::optional<Interval> interval;
};
Estimate EstimateOf(const std::vector<double>& values);

// The t test of pairs: whether values[i] - others[i] has the mean 0. Both have the same size.
struct PairedComparison {
  size_t n = 0;
  double difference = 0;  // the mean of values[i] - others[i]; 0 where rounding alone is left of it
  bool same = false;      // two pairs or more, and all differences are equal up to rounding
  // Of two pairs or more. Both are missing where `same`: there is no deviation to test by.
  std::optional<Interval> interval;
  std::optional<double> p;  // two-sided
};
PairedComparison CompareInPairs(const std::vector<double>& values,
                                const std::vector<double>& others);

// Holm's step-down adjustment of several tests' p: below α, the adjusted ones reject with a
// probability of at most α of even one wrong rejection (Holm, "A Simple Sequentially Rejective
// Multiple Test Procedure", 1979). Entries without a p are no tests. Parallel to `p`.
std::vector<std::optional<double>> HolmAdjusted(const std::vector<std::optional<double>>& p);

}  // namespace macaw::cli
