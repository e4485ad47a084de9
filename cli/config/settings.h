#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "algorithms/around/registry.h"
#include "cli/config/config.h"

namespace macaw::cli {

// The settings that differ from their defaults and decide a result, as a JSON object from key to
// value: {"cohort.size": 50, "local.lr": 0.05}. Left out are the run's name, seeds that equal
// run.seed (and run.seed itself), what follows from the data, and where and how the run is
// computed. Of a path only the last part is kept, of a plug-in its name, version and digest. So two
// runs of one experiment have the same settings on two machines.
std::string SettingsJson(const Config& config, const algorithms::Registry& registry);

// The default of a key, or of a parameter of a built-in algorithm ("algorithm.fedprox.mu"), as
// JSON: "\"run\"" for a seed, which follows run.seed. "" if there is none.
std::string DefaultOf(const std::string& key, const algorithms::Registry& registry);

// Parameters that are given for algorithms other than the run's: "algorithm.fedprox.mu".
std::vector<std::string> UnusedParameters(const Config& config);

// Whether a key, or each key of a table, only says where and how a run is computed, and cannot
// change its result. The server's keys of [round] are none of these: they say which clients count.
bool OnlyComputes(const std::string& key);

// Whether a run of this configuration must keep this key when it goes on. False for a key that does
// not exist.
bool IsKeptByAResume(const std::string& key, const Config& config);

// The others, a whole table as "workers.*".
std::vector<std::string> KeysThatMayChange(const Config& config);

}  // namespace macaw::cli
