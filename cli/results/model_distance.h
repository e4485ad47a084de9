#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace macaw::cli {

// ‖a − b‖₂ over all numbers of two model files with the same tensors, F32 or F64. An error names
// the first tensor that only one has, or that has another shape.
absl::StatusOr<double> DistanceOfModels(const std::string& a, const std::string& b);

}  // namespace macaw::cli
