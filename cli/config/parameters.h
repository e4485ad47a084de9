#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/config/toml.h"

namespace macaw::cli {

// The algorithm of a table [algorithm.NAME]. The error names its line.
absl::StatusOr<const algorithms::Description*> AlgorithmAt(const algorithms::Registry& registry,
                                                           const std::string& name,
                                                           const Place& place);

// The value of algorithm.NAME.KEY, checked by the algorithm. Errors name the line and the key, and
// for an unknown one the nearest parameter.
absl::StatusOr<ParameterValue> ReadParameter(const algorithms::Registry& registry,
                                             const std::string& name, const std::string& key,
                                             const Value& value);

}  // namespace macaw::cli
