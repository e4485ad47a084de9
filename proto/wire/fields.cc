#include "proto/wire/fields.h"

namespace macaw::wire {
namespace {

constexpr int64_t kLongestDuration = int64_t{366} * 24 * 3600 * 1'000'000'000;
constexpr int kMaxRank = 16;

}  // namespace

double Fields::Finite(absl::string_view field, double value) {
  Require(std::isfinite(value), field, "must be a finite number");
  return value;
}

double Fields::NotNegative(absl::string_view field, double value) {
  Require(std::isfinite(value) && value >= 0, field, "must be a finite number, not below 0");
  return value;
}

std::string Fields::Name(absl::string_view field, const std::string& value) {
  Require(value.size() <= kMaxNameBytes, field, "longer than 4096 bytes");
  return status_.ok() ? value : std::string();
}

Digest Fields::ReadDigest(absl::string_view field, const std::string& bytes) {
  Digest digest;
  Require(bytes.empty() || bytes.size() == digest.bytes.size(), field, "a digest is 32 bytes");
  if (status_.ok() && !bytes.empty()) std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

Duration Fields::ReadDuration(absl::string_view field, int64_t nanoseconds) {
  return Duration(Between<int64_t>(field, nanoseconds, 0, kLongestDuration));
}

std::vector<int64_t> Fields::Shape(absl::string_view field,
                                   const google::protobuf::RepeatedField<int64_t>& shape) {
  Require(shape.size() <= kMaxRank, field, "more than 16 dimensions");
  for (const int64_t d : shape) Require(d >= 1, field, "every dimension is at least 1");
  return status_.ok() ? std::vector<int64_t>(shape.begin(), shape.end()) : std::vector<int64_t>();
}

}  // namespace macaw::wire
