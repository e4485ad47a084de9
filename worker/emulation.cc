#include "worker/emulation.h"

#include <cmath>
#include <numbers>

#include "core/random.h"

namespace macaw {

double EmulatedSlowdown(const EmulationConfig& config, const EmulatedPlace& place, Round round) {
  double factor = place.slot < config.slowdown.size() ? config.slowdown[place.slot] : 1.0;
  const double k = place.slot + 1.0;
  if (config.environment == "ratio") factor *= 1 + config.ratio * k / place.slots;
  if (config.environment == "cos") {
    const double turn = std::numbers::pi * round.value / place.rounds + k;
    factor *= 1 + config.ratio * (1 + std::cos(turn));
  }
  return factor;
}

double EmulatedPause(const EmulationConfig& config, Round round, ClientId client) {
  if (config.pause_probability == 0) return 0;
  RandomStream stream(
      {.seed = config.seed, .purpose = Purpose::kPause, .round = round, .client = client});
  return stream.Uniform() < config.pause_probability ? config.pause_seconds : 0;
}

double EmulatedSlots::Longer(uint32_t slot, uint32_t rounds, Round round, ClientId client,
                             double took) const {
  const EmulatedPlace place{.slot = first_slot + slot, .slots = run_slots, .rounds = rounds};
  return took * (EmulatedSlowdown(config, place, round) - 1) + EmulatedPause(config, round, client);
}

}  // namespace macaw
