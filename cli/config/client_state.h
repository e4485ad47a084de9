#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/config/config.h"
#include "models/spec.h"
#include "state/open.h"

namespace macaw::cli {

// What the clients of a resolved configuration keep between rounds, in the algorithm's order;
// empty: nothing.
absl::StatusOr<std::vector<algorithms::NamedLayout>> StateItemsOf(
    const Config& config, const models::ModelSpec& spec, const algorithms::Registry& registry);

// The options of a worker's state store, from [state]. `run_folder` is where the states lie unless
// state.path is set; "": no folder. If the URL of a Redis has no password, it is taken from the
// environment (MACAW_REDIS_PASSWORD).
state::StoreOptions StoreOptionsOf(const Config& config, const std::string& run_folder);

// Puts the password of state.url, if there is one, into the environment of child processes, so that
// it is in no file and on no command line. Call it before any thread is started.
void HandRedisPasswordOn(const Config& config);

// Whether `macaw simulate` can start, or resume, a run whose clients keep a state. An error names
// the keys of [state] and [workers] to change.
enum class Start { kNew, kResumed };
absl::Status CheckStateStore(const Config& config, Start start);

}  // namespace macaw::cli
