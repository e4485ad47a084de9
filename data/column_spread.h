#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace macaw::data {

// How far the numbers of a column spread, which are read as float64 and kept as float32. One
// thread.
class ColumnSpread {
 public:
  void Add(double value) {
    if (count_++ == 0) first_ = least_ = most_ = value;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
    const double difference = value - first_;
    sum_ += difference;
    squares_ += difference * difference;
  }

  // For people, of numbers that differ by hardly more than float32 can tell, such as times in
  // seconds within some minutes: near 1.7e9 it has steps of 128. "": float32 tells them apart.
  // `column` names them: "column 3".
  std::string Note(absl::string_view column) const;

 private:
  uint64_t count_ = 0;
  double first_ = 0, least_ = 0, most_ = 0;
  double sum_ = 0, squares_ = 0;  // of the differences from the first number
};

// What these numbers span.
inline ColumnSpread SpreadOf(std::span<const double> values) {
  ColumnSpread spread;
  for (const double value : values) spread.Add(value);
  return spread;
}

}  // namespace macaw::data
