#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "sdk/rules/schema.h"

namespace macaw::sdk::rules {

// The two halves of a rule in Python. Each has processes and shared vectors of its own.

// Any number of threads, as every client half; each workspace has an arena, which begins to take
// memory with the workspace's first turn.
absl::StatusOr<std::unique_ptr<algorithms::ClientAlgorithm>> MakeClientHalf(
    const Rule& rule, const algorithms::Setup& setup);

// One thread. The server's vectors lie in shared memory for good, and apply() changes them there.
absl::StatusOr<std::unique_ptr<algorithms::ServerAlgorithm>> MakeServerHalf(
    const Rule& rule, const algorithms::Setup& setup, FlatVector model);

}  // namespace macaw::sdk::rules
