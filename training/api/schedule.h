#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/local.h"

namespace macaw::training {

// The factor of `lr` in `round` (1, 2, …), by the formulas beside core's Schedule. Warm-up comes
// first: with n warm-up rounds, round r ≤ n has the factor r/(n+1), and the schedule itself begins
// in round n+1 with factor 1. An unknown kind counts as "constant"; the configuration's reader
// refuses it.
double ScheduleFactor(const Schedule& schedule, uint32_t round);

// Parses a schedule written in one line, kind first: "constant", "step gamma 0.5 every 100",
// "exponential gamma 0.99", "cosine rounds 200 floor 0.01", each optionally followed by "warmup 5".
// Errors say which word is wrong or missing.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

}  // namespace macaw::training
