#pragma once

#include <cmath>
#include <cstddef>

namespace macaw::virtual_time {

// Mean and standard deviation of f(0), f(1), … f(count − 1).
struct Moments {
  double mean = 0, deviation = 0;
};

template <typename F>
Moments MomentsOf(size_t count, const F& f) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = f(i);
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  return {.mean = mean, .deviation = std::sqrt(squares / n - mean * mean)};
}

}  // namespace macaw::virtual_time
