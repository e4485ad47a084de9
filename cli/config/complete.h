#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/config/config.h"
#include "cli/config/settings.h"
#include "cli/config/toml.h"

// What a whole configuration must have, and what follows from the keys that were given. Errors
// begin with a place, and name the key. Pure, but for the source of the data, which is looked up in
// its files. Thread-safe.
namespace macaw::cli {

// The keys that were given. What they refer to must live as long.
struct GivenKeys {
  const std::vector<Field>& fields;            // all that there are
  const std::set<std::string>& keys;           // given, and not left out
  const std::map<std::string, Place>& places;  // of keys and parameters that were given
};

// The source of the data: a path without one says it by its contents.
absl::Status FindSource(const GivenKeys& given, const Place& file, Config& config);

// The names of models that have no name of their own.
void NameModel(Config& config);

// Refuses a run without a model or a cohort, and one whose rule does not exist. Names the model.
absl::Status CheckNeeded(const GivenKeys& given, const Place& file,
                         const algorithms::Registry& registry, Config& config);

// Seeds that were not given are the run's.
void FollowTheRunsSeed(const GivenKeys& given, Config& config);

// Adds what follows from the keys, the rule's parameters among it, and refuses a switch that is on
// without the keys that it needs.
absl::StatusOr<Config> CompleteConfig(const GivenKeys& given, const Place& file,
                                      const algorithms::Registry& registry, Config config);

// The run's name where none was given: that of its file. Refuses one that cannot name a folder.
absl::Status NameRun(const std::string& file, Config& config);

}  // namespace macaw::cli
