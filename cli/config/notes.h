#pragma once

#include <string>
#include <vector>

#include "algorithms/api/registry.h"
#include "cli/config/config.h"
#include "data/dataset.h"
#include "models/spec.h"

namespace macaw::cli {

// What a user should know of a resolved run before it begins, a sentence each: what its algorithm
// has to say, and that its clients' own models will not be evaluated. An algorithm that is not in
// the registry has nothing to say; the run is refused elsewhere.
std::vector<std::string> NotesOf(const Config& config, const models::ModelSpec& spec,
                                 const data::Dataset& dataset,
                                 const algorithms::Registry& registry);

}  // namespace macaw::cli
