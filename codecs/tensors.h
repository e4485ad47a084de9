#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/vector.h"

namespace macaw::codecs {

// Calls f(values) for each tensor of parameters, a std::span<float> or std::span<double>.
template <typename F>
void ForEachTensor(VectorView v, F&& f) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : v.layout->entries()) {
      if (entry.group == Group::kParameter) f(v.As<T>().subspan(entry.offset, entry.size));
    }
  });
}

// Calls f(piece) for each `size` numbers in turn; the last piece may be shorter.
template <typename T, typename F>
void ForEachPiece(std::span<T> values, size_t size, F&& f) {
  for (size_t begin = 0; begin < values.size(); begin += size)
    f(values.subspan(begin, std::min(size, values.size() - begin)));
}

// |v|, and infinity for a NaN, so that numbers have an order.
template <typename T>
T Magnitude(T v) {
  return std::isnan(v) ? std::numeric_limits<T>::infinity() : std::fabs(v);
}

// The largest |v|; a NaN if there is one.
template <typename T>
double LargestOf(std::span<const T> values) {
  double largest = 0;
  for (const T v : values) {
    const double size = std::fabs(static_cast<double>(v));
    if (size <= largest) continue;
    if (std::isnan(size)) return size;
    largest = size;
  }
  return largest;
}

}  // namespace macaw::codecs
