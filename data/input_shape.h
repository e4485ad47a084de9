#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/options.h"

namespace macaw::data {

// The shape of one example: data.input_shape where it is given, else the stored one. The values
// stay as they are and where they are. Errors name both shapes: another number of elements, or
// tokens, whose only axis is their order. `name`: the file, for messages.
absl::StatusOr<std::vector<int64_t>> InputShape(const DataOptions& options,
                                                const std::vector<int64_t>& stored,
                                                FeatureType type, const std::string& name);

}  // namespace macaw::data
