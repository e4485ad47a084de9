#pragma once

#include <string>
#include <vector>

#include "algorithms/api/description.h"
#include "cli/config/config.h"
#include "data/dataset.h"
#include "models/spec.h"

namespace macaw::cli {

// What a user should know of the clients' rows before a run begins, in sentences: which clients
// take no step, are not tested, or are in none of the columns that the run asks for.
std::vector<std::string> ClientNotes(const Config& config, const models::ModelSpec& spec,
                                     const algorithms::Description& rule,
                                     const data::Dataset& dataset);

}  // namespace macaw::cli
