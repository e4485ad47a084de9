#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/run_config.h"

namespace macaw::training {

// What `lr` is multiplied by in `round` (1, 2, …), by the formulas beside core's Schedule. Warm-up
// comes first: for n warm-up rounds the factor of round r ≤ n is r/(n+1), and the schedule proper
// begins in round n+1, with factor 1. An unknown kind counts as "constant": the configuration's
// reader has refused it.
double ScheduleFactor(const Schedule& schedule, uint32_t round);

// A schedule in one line, kind first: "constant", "step gamma 0.5 every 100", "exponential gamma
// 0.99", "cosine rounds 200 floor 0.01", each with "warmup 5" at its end if wanted. Errors say
// which word is wrong or missing.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

}  // namespace macaw::training
