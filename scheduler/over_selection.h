#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// Over-selection (Bonawitz et al. 2019, §4): more clients are asked than are needed, and those that
// would report first are kept. In simulation, who is first must not be timed: a client's duration
// is its rows times a log-normal factor of its device, drawn once per client, times one of the
// round.
struct OverSelectionOptions {
  uint64_t keep = 0;          // clients of a round
  double device_spread = 1;   // σ of ln(the device's factor)
  double round_spread = 0.2;  // σ of ln(the round's factor)
  uint64_t seed = 0;
};

// Seconds of a device that would take one second a row without any spread.
double EmulatedDuration(const OverSelectionOptions& options, Round round, const CohortEntry& entry);

// Keeps the `keep` shortest of those that `candidates` draws; equal ones by client. O(m log m) of m
// candidates.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeOverSelection(
    const OverSelectionOptions& options, std::unique_ptr<CohortSampler> candidates);

}  // namespace macaw::scheduler
