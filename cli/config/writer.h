#pragma once

#include <string>
#include <vector>

#include "algorithms/around/registry.h"
#include "cli/config/config.h"

namespace macaw::cli {

// The whole configuration, defaults included, as a file that parses to the same Config (config.toml
// of a run).
std::string EffectiveToml(const Config& config);

// The keys of the node alone: what a worker of the run reads.
std::string NodeToml(const NodeConfig& node);

// What a server needs that has no data: the run's plan and the server's own keys, and no path. The
// plan must be resolved.
std::string ServerToml(const Config& config);
std::vector<Field> ServerFields();  // the keys in it, but for those of [algorithm.NAME]

// Every key with its default, range and meaning, as a commented file: `macaw simulate
// --help-config`.
std::string ConfigHelp(const algorithms::Registry& registry);

// "0.1", "true", "fast": a parameter as TOML.
std::string ToToml(const ParameterValue& value);

// What a parameter may be: "a number >= 0", "a | b".
std::string RangeText(const algorithms::ParameterSpec& spec);

}  // namespace macaw::cli
