#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/cohort.h"
#include "scheduler/trainable.h"
#include "virtual_time/presence.h"

namespace macaw::scheduler {

// Which clients are available. In each round a client is available with a probability that may
// follow the time of day: p = probability · (1 + swing · sin(2π · (round ÷ day + phase))), where
// each client has its own phase. The outcome follows from the seed, the round, the client and how
// often it was drawn anew within the round (Moment::pauses) alone.
struct AvailabilityOptions {
  double probability = 0.5;  // (0, 1]
  double swing = 0;          // [0, 1]; probability · (1 + swing) is at most 1
  uint32_t day = 24;         // rounds
  uint64_t seed = 0;
};

bool IsAvailable(const AvailabilityOptions& options, Round round, ClientId client,
                 uint32_t pauses = 0);

// Draws `size` of the available clients, every subset being equally likely, or all of them if there
// are fewer. O(size ÷ probability) for any population, or O(population) if that would be more than
// half of it. Errors name the key of [cohort].
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeAvailableSampler(
    const AvailabilityOptions& options, uint64_t size, Trainable clients);

// The same for the clients that are there at the moment of the draw. `presence` must outlive the
// sampler.
std::unique_ptr<CohortSampler> MakePresentSampler(uint64_t seed, uint64_t size, Trainable clients,
                                                  const virtual_time::Presence& presence);

}  // namespace macaw::scheduler
