#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/digest.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {

// Checks the fields of one message and remembers the first invalid one, so that a conversion is one
// check at its end. After an error every method returns a harmless default. One thread.
class FieldChecks {
 public:
  const absl::Status& status() const { return status_; }

  void Require(bool good, absl::string_view field, absl::string_view why) {
    if (!good && status_.ok()) status_ = Malformed(field, why);
  }
  // Of a nested message or list item, whose path is `field`.
  void Nested(absl::string_view field, const absl::Status& status) {
    if (!status.ok() && status_.ok()) status_ = Within(field, status);
  }

  template <typename T>
  T Between(absl::string_view field, T value, T low, T high) {
    if (value >= low && value <= high) return value;
    Require(false, field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
    return low;
  }

  double NotNegative(absl::string_view field, double value);  // also finite
  std::string Name(absl::string_view field, const std::string& value);
  Digest ReadDigest(absl::string_view field, const std::string& bytes);  // empty: zero
  Duration ReadDuration(absl::string_view field, int64_t nanoseconds);   // 0 … 1 year
  void Dimensions(absl::string_view field, const std::vector<int64_t>& shape);

  // C++ enumerators count from 0 to `last`, the wire's from 1 (0 is "unspecified").
  template <typename E>
  E Enum(absl::string_view field, int wire, E last) {
    if (wire >= 1 && wire <= static_cast<int>(last) + 1) return static_cast<E>(wire - 1);
    Require(false, field, absl::StrCat(wire, " is not a value this program knows"));
    return E{};
  }

  // The size of a column of `rows` rows.
  void ColumnSize(absl::string_view field, int size, int rows) {
    if (size == rows) return;
    Require(false, field, absl::StrCat("has ", size, " values for ", rows, " clients"));
  }

  // Reads a repeated message into `items`. read(message, item) returns a status.
  template <typename Repeated, typename T, typename Read>
  void Each(absl::string_view field, const Repeated& messages, std::vector<T>& items,
            const Read& read) {
    items.reserve(messages.size());
    for (const auto& message : messages) {
      if (!status_.ok()) return;
      const absl::Status status = read(message, items.emplace_back());
      if (!status.ok()) Nested(absl::StrCat(field, "[", items.size() - 1, "]"), status);
    }
  }

 private:
  absl::Status status_;
};

}  // namespace macaw::wire
