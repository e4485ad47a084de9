#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::models {

// The layers of a built-in model for one input shape and number of outputs, as a user would write
// them. An unknown name is an error that lists the known ones.
absl::StatusOr<std::vector<std::string>> LayersOf(const std::string& name,
                                                  const std::vector<int64_t>& input_shape,
                                                  int64_t outputs);

}  // namespace macaw::models
