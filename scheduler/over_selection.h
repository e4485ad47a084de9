#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// Over-selection (Bonawitz et al. 2019, §4): more clients are asked than are needed, and those that
// report first are kept. In a simulation the order must not be measured. A client's duration is
// therefore its rows times two log-normal factors: one of its device, drawn once per client, and
// one of the round.
struct OverSelectionOptions {
  uint64_t keep = 0;          // clients of a round
  double device_spread = 1;   // σ of ln(the device's factor)
  double round_spread = 0.2;  // σ of ln(the round's factor)
  uint64_t seed = 0;
};

// The duration in seconds; without spread, a device takes one second per row.
double EmulatedDuration(const OverSelectionOptions& options, Round round, const CohortEntry& entry);

// Keeps the `keep` candidates with the shortest durations; ties go to the smaller client id. O(m
// log m) for m candidates.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeOverSelection(
    const OverSelectionOptions& options, std::unique_ptr<CohortSampler> candidates);

}  // namespace macaw::scheduler
