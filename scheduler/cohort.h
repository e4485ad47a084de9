#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "plan/cohort.h"

namespace macaw::scheduler {

// One client of a round. A client that was drawn m times trains once and counts m times.
struct CohortEntry {
  ClientId client;
  uint32_t multiplicity = 1;
  uint64_t load = 0;  // training rows
  // More inputs of the cost model (cost.h); samplers leave them at their defaults.
  uint64_t steps = 0;      // local steps it will take
  bool has_state = false;  // the client has a state to read
};

// Who trains in a round, sorted by client id.
struct Cohort {
  Round round{};
  std::vector<CohortEntry> entries;
};

// Draws cohorts. A cohort depends only on seed, round and population, never on time or on the
// workers.
class CohortSampler {
 public:
  virtual ~CohortSampler() = default;
  virtual Cohort Sample(Round round) const = 0;
};

// How many clients a round asks: cohort.size, or more with over-selection.
uint64_t AskedClients(const CohortConfig& config);

// `examples[k]` is the number of client k's training rows; it must outlive the sampler. Errors name
// the key of [cohort] to change.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeSampler(const CohortConfig& config,
                                                           std::span<const uint32_t> examples);
}  // namespace macaw::scheduler
