#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "algorithms/api/registry.h"
#include "cli/config/config.h"

namespace macaw::cli {

// What a configuration says that is not the default and that decides a result: a JSON object from
// key to value, {"cohort.size": 50, "local.lr": 0.05}. Left out are the run's name, its seeds
// (those of single sections only where they are run.seed), what the data itself says, and where and
// how the run is computed. Of a path only the last part is there, of a plug-in its name, version
// and digest: two runs of one experiment say the same on two machines.
std::string SettingsJson(const Config& config, const algorithms::Registry& registry);

// The default of a key, or of a parameter of a built-in algorithm ("algorithm.fedprox.mu"), as JSON
// text; "" where there is none.
std::string DefaultOf(const std::string& key, const algorithms::Registry& registry);

// Parameters that are given to algorithms other than the run's: "algorithm.fedprox.mu".
std::vector<std::string> UnusedParameters(const Config& config);

// Whether a key only says where and how a run is computed, and never what comes out.
bool OnlyComputes(absl::string_view key);

}  // namespace macaw::cli
