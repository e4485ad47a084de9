#pragma once

#include <string>
#include <vector>

#include "algorithms/around/registry.h"
#include "cli/config/config.h"
#include "data/dataset.h"
#include "models/spec.h"

namespace macaw::cli {

// What the rule says of the run's privacy; for a run that goes on, whose rounds may be more.
std::vector<std::string> PrivacyNotesOf(const Config& config, const models::ModelSpec& spec,
                                        const algorithms::Registry& registry);

// What a user should know about a resolved run before it begins, in sentences: the keys without an
// effect, the algorithm's notes, and whether clients' own models will not be evaluated. For an
// algorithm that is not in the registry the result is empty; the run is refused elsewhere.
std::vector<std::string> NotesOf(const Config& config, const models::ModelSpec& spec,
                                 const data::Dataset& dataset,
                                 const algorithms::Registry& registry);

// Of learning rates that are 0 in the last rounds of a run: from which round on nothing is learnt.
// And how many steps local.qsr gives the first round and the last.
std::vector<std::string> ScheduleNotes(const RunPlan& run);

}  // namespace macaw::cli
