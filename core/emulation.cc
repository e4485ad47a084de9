#include "core/emulation.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw {

absl::Status Validate(const EmulationConfig& config) {
  for (const double factor : config.slowdown) {
    if (!(factor >= 1) || !std::isfinite(factor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a slot's slowdown is ", factor, "; it has to be 1 or more"));
    }
  }
  if (config.environment != "none" && config.environment != "ratio" &&
      config.environment != "cos") {
    return absl::InvalidArgumentError(absl::StrCat(
        "emulation.environment is \"", config.environment, "\"; known: none, ratio, cos"));
  }
  if (!(config.ratio >= 0) || !std::isfinite(config.ratio)) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulation.ratio is ", config.ratio, "; it has to be 0 or more"));
  }
  if (!(config.pause_probability >= 0 && config.pause_probability <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("emulation.pause_probability is ",
                                                   config.pause_probability,
                                                   "; it has to lie between 0 and 1"));
  }
  if (!(config.pause_seconds >= 0) || !std::isfinite(config.pause_seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "emulation.pause_seconds is ", config.pause_seconds, "; it has to be 0 or more"));
  }
  return absl::OkStatus();
}

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

}  // namespace macaw
