#include "data/column_spread.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace macaw::data {
namespace {

// Between a float of this size and the next larger one.
double StepOf(float size) {
  using Limits = std::numeric_limits<float>;
  return std::ldexp(1.0, std::max(std::ilogb(size), Limits::min_exponent - 1) - Limits::digits + 1);
}

}  // namespace

std::string ColumnSpread::Note(absl::string_view column) const {
  if (least_ == most_) return "";
  const double step = StepOf(static_cast<float>(std::max(std::fabs(least_), std::fabs(most_))));
  const auto count = static_cast<double>(count_);
  const double variance = (squares_ - sum_ * sum_ / count) / count;
  if (step <= std::sqrt(std::max(0.0, variance)) / 20) return "";
  return absl::StrFormat(
      "%s has numbers from %.12g to %.12g, and float32, in which a run has them, has steps of "
      "%.3g there: subtract a number near them, such as the minimum",
      column, least_, most_, step);
}

}  // namespace macaw::data
