#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/model.h"

namespace macaw::models {

// The layers of the built-in model `config.name` for its input shape and outputs, as a user would
// write them. For an unknown name, the error lists the known ones.
absl::StatusOr<std::vector<std::string>> LayersOf(const ModelConfig& config);

// A configuration of each built-in model, for an input that it is made for and ten outputs.
std::vector<ModelConfig> ExampleConfigs();

}  // namespace macaw::models
