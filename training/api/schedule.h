#pragma once

#include <cstdint>

#include "core/run_config.h"

namespace macaw::training {

// What `lr` is multiplied by in `round` (1, 2, …), by the formulas beside core's Schedule. Warm-up
// comes first: for n warm-up rounds the factor of round r ≤ n is r/(n+1), and the schedule proper
// begins in round n+1, with factor 1. An unknown kind counts as "constant": the configuration's
// reader has refused it.
double ScheduleFactor(const Schedule& schedule, uint32_t round);

}  // namespace macaw::training
