#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace macaw::scheduler::fixtures {

// Pearson's χ² of counts against expectations, in standard deviations from its mean.
inline double Surprise(const std::vector<double>& counts, const std::vector<double>& expected) {
  double chi2 = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    chi2 += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  const double freedom = static_cast<double>(counts.size() - 1);
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

}  // namespace macaw::scheduler::fixtures
