#pragma once

#include <map>
#include <string>
#include <vector>

#include "algorithms/around/registry.h"
#include "cli/config/config.h"

namespace macaw::cli {

// A key that other keys leave without an effect is idle. What each key needs stands beside it: in
// the list of its section (settings::Field::needs), in FieldsWith where it needs a key of another
// room, in Description::ignores where a rule does not read it, and beside an algorithm's parameter
// (ParameterSpec::needs). Nothing else decides it.

// Why the field has no effect in `config`, as IdleKey::why says it; "" if it has one. The
// algorithm's parameters must be complete or absent.
std::string WhyIdle(const Field& field, const Config& config, const algorithms::Registry& registry);

// The same for the parameters that are given for the run's algorithm, by name; those that have an
// effect are not in the result.
std::map<std::string, std::string> IdleParameters(const Config& config,
                                                  const algorithms::Registry& registry);

// Whether a file turns off what the field needs: it gives one of the keys that the missing need
// names as 0, false, "none" or "constant", or names a rule that does not read the field. The rest
// of a table may stay then. `given`: the keys of the file.
bool IsSwitchedOff(const Field& field, const Config& config,
                   const std::vector<const Field*>& given);

// Whether the field has its default and that asks for nothing: 0, false, "", [], "auto" or "none".
// Such a key is never idle.
bool AsksForNothing(const Field& field, const Config& config);

// "local.nesterov has no effect without local.momentum above 0"
std::string TextOf(const IdleKey& key);

}  // namespace macaw::cli
