#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/cohort.h"
#include "scheduler/trainable.h"

namespace macaw::scheduler {

// Who is there at all. In each round a client is available with a probability that may follow the
// day: p = probability · (1 + swing · sin(2π · (round ÷ day + its phase))), with a phase of its
// own. Whether it is follows from seed, round and client alone.
struct AvailabilityOptions {
  double probability = 0.5;  // (0, 1]
  double swing = 0;          // [0, 1]; probability · (1 + swing) is at most 1
  uint32_t day = 24;         // rounds
  uint64_t seed = 0;
};

bool IsAvailable(const AvailabilityOptions& options, Round round, ClientId client);

// `size` of the available clients, every subset of them equally likely; all of them where fewer are
// there. O(size ÷ probability) for any population, unless that is more than half of it: then
// O(population). Errors name the key of [cohort].
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeAvailableSampler(
    const AvailabilityOptions& options, uint64_t size, Trainable clients);

}  // namespace macaw::scheduler
