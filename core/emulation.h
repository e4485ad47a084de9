#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"

namespace macaw {

// Uneven hardware on even hardware, for experiments: how much longer than it really takes a client
// keeps a slot busy. A function of the seed, the round, the client and the slot alone, added after
// the client's work is done, so it moves clients between slots and never changes a result.
struct EmulationConfig {
  std::vector<double> slowdown;  // of each slot of the run, ≥ 1; missing: 1
  // Tang et al. 2023 (FedML Parrot), slots numbered k = 1 … K, rounds r = 1 … R: "ratio" makes slot
  // k slower by 1 + ratio·k/K for ever, "cos" by 1 + ratio·(1 + cos(π·r/R + k)) in round r.
  std::string environment = "none";
  double ratio = 1;
  // Random pauses: a client's turn is longer by pause_seconds with this probability.
  double pause_probability = 0;
  double pause_seconds = 0;
  uint64_t seed = 0;

  bool any() const { return !slowdown.empty() || environment != "none" || pause_probability > 0; }
};

// Names the value that is out of range.
absl::Status Validate(const EmulationConfig& config);

struct EmulatedPlace {
  uint32_t slot = 0;   // counted over all slots of the run, from 0
  uint32_t slots = 1;  // of the run
  uint32_t rounds = 1;
};

// How many times as long a client takes on that slot in that round; ≥ 1.
double EmulatedSlowdown(const EmulationConfig& config, const EmulatedPlace& place, Round round);
// Seconds that the client's turn is longer on top.
double EmulatedPause(const EmulationConfig& config, Round round, ClientId client);

}  // namespace macaw
