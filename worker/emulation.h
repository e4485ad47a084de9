#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"

namespace macaw {

// Emulates uneven hardware on even hardware, for experiments: how much longer a client keeps its
// slot busy than its work takes. It depends only on the seed, the round, the client and the slot,
// and the delay is added after the work. So it changes which slot trains a client, never a result.
struct EmulationConfig {
  std::vector<double> slowdown;  // of each slot of the run, ≥ 1; slots that are not listed: 1
  // Tang et al. 2023 (FedML Parrot), slots numbered k = 1 … K, rounds r = 1 … R: "ratio" makes slot
  // k slower by 1 + ratio·k/K for ever, "cos" by 1 + ratio·(1 + cos(π·r/R + k)) in round r.
  std::string environment = "none";
  double ratio = 1;
  // Random pauses: with this probability a client's turn takes pause_seconds longer.
  double pause_probability = 0;
  double pause_seconds = 0;
  uint64_t seed = 0;

  bool any() const { return !slowdown.empty() || environment != "none" || pause_probability > 0; }
};

struct EmulatedPlace {
  uint32_t slot = 0;   // numbered over all slots of the run, from 0
  uint32_t slots = 1;  // number of slots of the run
  uint32_t rounds = 1;
};

// The factor by which a client takes longer on that slot in that round; ≥ 1.
double EmulatedSlowdown(const EmulationConfig& config, const EmulatedPlace& place, Round round);
// Seconds that are added to the client's turn, besides the slowdown.
double EmulatedPause(const EmulationConfig& config, Round round, ClientId client);

// The slots of a node, numbered from 0, as slots of the whole run.
struct EmulatedSlots {
  EmulationConfig config;
  uint32_t first_slot = 0;  // the run's number of the node's first one
  uint32_t run_slots = 1;

  // How many seconds longer the client keeps the node's slot busy than the `took` seconds of its
  // work. `rounds`: of the run.
  double Longer(uint32_t slot, uint32_t rounds, Round round, ClientId client, double took) const;
};

}  // namespace macaw
