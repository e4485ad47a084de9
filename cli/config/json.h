#pragma once

#include <nlohmann/json.hpp>

#include "cli/config/toml.h"
#include "plan/algorithm.h"

namespace macaw::cli {

// A value of a configuration as JSON; tables keep their order.
nlohmann::ordered_json ToJson(const Value& value);
nlohmann::ordered_json ToJson(const ParameterValue& value);

}  // namespace macaw::cli
