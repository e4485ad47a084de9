#include "server/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace macaw::server {

ClientValues::ClientValues(std::vector<double> values, bool higher_is_better)
    : sorted_(std::move(values)), higher_is_better_(higher_is_better) {
  // Added in the order of the clients, before they are sorted.
  double square = 0;
  for (const double value : sorted_) mean_ += value;
  mean_ /= static_cast<double>(sorted_.size());
  for (const double value : sorted_) square += (value - mean_) * (value - mean_);
  deviation_ = std::sqrt(square / static_cast<double>(sorted_.size()));
  // < alone is not a strict weak order with NaN.
  std::ranges::sort(sorted_,
                    [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
}

// Half the mean absolute difference over all pairs, divided by the mean. Of n equal to 0 but one:
// 1 − 1/n. For values that are not negative.
double ClientValues::Gini() const {
  const auto n = static_cast<double>(sorted_.size());
  if (mean_ == 0) return 0;
  double weighted = 0;  // Σ (2i − n + 1)·x_i, i from 0
  for (size_t i = 0; i < sorted_.size(); ++i)
    weighted += (2 * static_cast<double>(i) - n + 1) * sorted_[i];
  return weighted / (n * n * mean_);
}

double ClientValues::WorstTenth() const {
  const size_t tenth = std::max<size_t>(1, sorted_.size() / 10);
  double worst = 0;
  for (size_t i = 0; i < tenth; ++i)
    worst += higher_is_better_ ? sorted_[i] : sorted_[sorted_.size() - 1 - i];
  return worst / static_cast<double>(tenth);
}

double ClientValues::Quantile(double q) const {
  const double position = q * static_cast<double>(sorted_.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, sorted_.size() - 1);
  return sorted_[low] + (position - static_cast<double>(low)) * (sorted_[high] - sorted_[low]);
}

}  // namespace macaw::server
