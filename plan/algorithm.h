#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "core/settings/value.h"

namespace macaw {

using ParameterValue = std::variant<bool, int64_t, double, std::string>;

// Which algorithm, and its parameters. Its description (algorithms/around/registry.h) says which
// parameters it has; this room knows no algorithm.
struct AlgorithmConfig {
  std::string name = "fedavg";
  std::map<std::string, ParameterValue> parameters;  // complete: defaults are filled in
  friend bool operator==(const AlgorithmConfig&, const AlgorithmConfig&) = default;
};

settings::Value ToValue(const ParameterValue& parameter);
// Nothing for a list, a table or a date.
std::optional<ParameterValue> ToParameter(const settings::Value& value);

}  // namespace macaw
