#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/local.h"
#include "plan/run_plan.h"

namespace macaw::training {

// The factor of `lr` in `round` (1, 2, …). Warm-up comes first: with n warm-up rounds, round r ≤ n
// has the factor r/(n+1), and the schedule itself begins in round n+1 with factor 1. Its t-th round
// (t = 0, 1, …) has
//
//   step         gamma^⌊t/every⌋
//   exponential  gamma^t
//   cosine       floor + (1 − floor)·½(1 + cos(π·t/T)), T = rounds − n; floor from t = T on
//
// as PyTorch's StepLR, ExponentialLR and CosineAnnealingLR with T_max = T. So the last of a
// cosine's rounds still trains. An unknown kind counts as "constant"; the configuration's reader
// refuses it.
double ScheduleFactor(const Schedule& schedule, uint32_t round);

// The schedule of a run's local.lr. A cosine without rounds of its own takes those of the run.
Schedule LocalSchedule(const RunPlan& run);

// The first round whose factor is 0, of a schedule whose factor is 0 in the last of `rounds`:
// nothing is learnt from then on. nullopt: the last round trains.
std::optional<uint32_t> FirstIdleRound(const Schedule& schedule, uint32_t rounds);

// Parses a schedule written in one line, kind first: "constant", "step gamma 0.5 every 100",
// "exponential gamma 0.99", "cosine rounds 200 floor 0.01", each optionally followed by "warmup 5",
// which a cosine's `rounds` include. Errors say which word is wrong or missing.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

}  // namespace macaw::training
