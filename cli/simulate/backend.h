#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "algorithms/around/registry.h"
#include "cli/config/config.h"
#include "models/spec.h"

namespace macaw::cli {

// Whether the workers of this installation can train a resolved run, before a folder is made and
// workers are started in vain. Loads the back end of GPUs, to see whether they are there, and no
// other. training::IsMissingBackend says whether the error is that one is not installed.
absl::Status CheckBackend(const Config& config, const models::ModelSpec& spec,
                          const algorithms::Registry& algorithms);

// Whether as many workers are started as the server waits for. Nobody else can join: only those
// that a simulation starts get a token.
absl::Status CheckWorkers(const Config& config);

// Slots per worker process of a simulation on this machine (SlotsPerProcess), with the devices of
// its back end counted.
uint32_t SlotsHere(const Config& config);

}  // namespace macaw::cli
