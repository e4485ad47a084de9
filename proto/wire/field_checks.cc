#include "proto/wire/field_checks.h"

#include <algorithm>
#include <cmath>

namespace macaw::wire {
namespace {

constexpr int64_t kLongestDuration = int64_t{366} * 24 * 3600 * 1'000'000'000;
constexpr size_t kMaxRank = 16;

}  // namespace

double FieldChecks::NotNegative(absl::string_view field, double value) {
  Require(std::isfinite(value) && value >= 0, field, "must be a finite number, not below 0");
  return value;
}

std::string FieldChecks::Name(absl::string_view field, const std::string& value) {
  Require(value.size() <= kMaxNameBytes, field,
          absl::StrCat("longer than ", kMaxNameBytes, " bytes"));
  return status_.ok() ? value : std::string();
}

Digest FieldChecks::ReadDigest(absl::string_view field, const std::string& bytes) {
  Digest digest;
  Require(bytes.empty() || bytes.size() == digest.bytes.size(), field, "a digest is 32 bytes");
  if (status_.ok() && !bytes.empty()) std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

Duration FieldChecks::ReadDuration(absl::string_view field, int64_t nanoseconds) {
  return Duration(Between<int64_t>(field, nanoseconds, 0, kLongestDuration));
}

void FieldChecks::Dimensions(absl::string_view field, const std::vector<int64_t>& shape) {
  Require(shape.size() <= kMaxRank, field, "more than 16 dimensions");
  for (const int64_t d : shape) Require(d >= 1, field, "every dimension is at least 1");
}

}  // namespace macaw::wire
