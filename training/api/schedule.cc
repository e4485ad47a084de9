#include "training/api/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace macaw::training {

double ScheduleFactor(const Schedule& schedule, uint32_t round) {
  const uint32_t first = 1;
  if (round <= schedule.warmup_rounds) {
    return static_cast<double>(std::max(round, first)) / (schedule.warmup_rounds + 1.0);
  }
  // Rounds behind us on the schedule proper; the first has none.
  const uint32_t passed = round - std::min(round, schedule.warmup_rounds + first);
  if (schedule.kind == "step") {
    return std::pow(schedule.gamma, passed / std::max(schedule.every, 1u));
  }
  if (schedule.kind == "exponential") return std::pow(schedule.gamma, passed);
  if (schedule.kind == "cosine") {
    // From 1 in the first round to the floor in the last, and the floor from there on.
    const uint32_t proper = schedule.rounds - std::min(schedule.rounds, schedule.warmup_rounds);
    const double length = std::max(proper, first + 1) - 1.0;
    const double turn = std::min(passed / length, 1.0);
    return schedule.floor +
           (1.0 - schedule.floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * turn));
  }
  return 1.0;
}

}  // namespace macaw::training
