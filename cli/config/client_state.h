#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/registry.h"
#include "cli/config/config.h"
#include "models/spec.h"
#include "state/open.h"

namespace macaw::cli {

// What the clients of a resolved configuration keep between rounds, in the algorithm's order;
// empty: nothing.
absl::StatusOr<std::vector<algorithms::NamedLayout>> StateItemsOf(
    const Config& config, const models::ModelSpec& spec, const algorithms::Registry& registry);

// [state] as a worker wants it. `run_folder` is where the states lie unless state.path says
// otherwise; "": nowhere. A Redis' password that its URL does not have comes from the environment
// (MACAW_REDIS_PASSWORD).
state::StoreOptions StoreOptionsOf(const Config& config, const std::string& run_folder);

// Puts the password of state.url, if there is one, where child processes find it: no file and no
// command line has it. Call before there are threads.
void HandRedisPasswordOn(const Config& config);

// Whether `macaw simulate` can run, or go on, with clients that keep a state; an error names the
// keys of [state] and [workers] to change.
enum class Start { kNew, kResumed };
absl::Status CheckStateStore(const Config& config, Start start);

}  // namespace macaw::cli
