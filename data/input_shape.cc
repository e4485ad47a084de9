#include "data/input_shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::data {
namespace {

// 0: more than 64 bits can count.
uint64_t Elements(const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements)) return 0;
  }
  return elements;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> InputShape(const DataOptions& options,
                                                const std::vector<int64_t>& stored,
                                                FeatureType type, const std::string& name) {
  const std::vector<int64_t>& wanted = options.input_shape;
  if (wanted.empty() || wanted == stored) return stored;
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.input_shape is [", absl::StrJoin(wanted, ", "), "], but an example of ",
                     name, " is [", absl::StrJoin(stored, ", "), "]", why));
  };
  if (type == FeatureType::kI32) return refuse(" tokens, whose only axis is their order");
  for (const int64_t extent : wanted) {
    if (extent < 1) return refuse(": every axis needs at least 1");
  }
  const uint64_t elements = Elements(wanted);
  if (elements != Elements(stored)) {
    return refuse(absl::StrCat(": ", elements, " elements against ", Elements(stored)));
  }
  return wanted;
}

}  // namespace macaw::data
