#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/digest.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {

// Reads the fields of one message and remembers the first invalid one, so that a conversion is one
// line per field and one check at the end. After an error every method returns a harmless default.
// One thread.
class Fields {
 public:
  const absl::Status& status() const { return status_; }

  void Require(bool good, absl::string_view field, absl::string_view why) {
    if (!good && status_.ok()) status_ = Malformed(field, why);
  }

  template <typename T>
  T Between(absl::string_view field, T value, T low, T high) {
    if (value >= low && value <= high) return value;
    Require(false, field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
    return low;
  }

  double Finite(absl::string_view field, double value);
  double NotNegative(absl::string_view field, double value);  // also finite
  std::string Name(absl::string_view field, const std::string& value);
  Digest ReadDigest(absl::string_view field, const std::string& bytes);  // empty: zero
  Duration ReadDuration(absl::string_view field, int64_t nanoseconds);   // 0 … 1 year
  std::vector<int64_t> Shape(absl::string_view field,
                             const google::protobuf::RepeatedField<int64_t>& shape);

  // C++ enumerators count from 0 to `last`, the wire's from 1 (0 is "unspecified").
  template <typename E>
  E Enum(absl::string_view field, int wire, E last) {
    if (wire >= 1 && wire <= static_cast<int>(last) + 1) return static_cast<E>(wire - 1);
    Require(false, field, absl::StrCat(wire, " is not a value this program knows"));
    return E{};
  }

  // The value of a nested message that has already been converted.
  template <typename T>
  T Sub(absl::string_view field, absl::StatusOr<T> value) {
    if (value.ok()) return *std::move(value);
    if (status_.ok()) status_ = Within(field, value.status());
    return T{};
  }

  // Checks a column of a message of columns: it has `rows` values, or none if it may be absent.
  template <typename Column>
  void CheckColumn(absl::string_view field, const Column& column, int rows,
                   bool may_be_absent = false) {
    if (column.size() == rows || (may_be_absent && column.empty())) return;
    Require(false, field, absl::StrCat("has ", column.size(), " values for ", rows, " clients"));
  }
  template <typename Column>
  double NotNegativeAt(absl::string_view field, const Column& column, int row) {
    const double value = column.Get(row);
    if (std::isfinite(value) && value >= 0) return value;
    return NotNegative(absl::StrCat(field, "[", row, "]"), value);
  }
  template <typename Column>
  uint32_t MultiplicityAt(const Column& column, int row) {
    const uint32_t value = column.empty() ? 1 : column.Get(row);
    if (value == 0) Require(false, absl::StrCat("multiplicity[", row, "]"), "is 0");
    return value;
  }

  // A repeated message; `convert` returns a StatusOr.
  template <typename Repeated, typename F>
  auto List(absl::string_view field, const Repeated& messages, F&& convert) {
    using T = typename decltype(convert(*messages.begin()))::value_type;
    std::vector<T> values;
    if (!status_.ok()) return values;
    values.reserve(messages.size());
    for (const auto& message : messages) {
      absl::StatusOr<T> value = convert(message);
      if (!value.ok()) {
        status_ = Within(absl::StrCat(field, "[", values.size(), "]"), value.status());
        break;
      }
      values.push_back(*std::move(value));
    }
    return values;
  }

  // `value` if every field was valid, else the first error.
  template <typename T>
  absl::StatusOr<T> Done(T value) const {
    if (!status_.ok()) return status_;
    return value;
  }

 private:
  absl::Status status_;
};

template <typename Wire, typename E>
Wire ToWireEnum(E value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}

}  // namespace macaw::wire
