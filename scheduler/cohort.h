#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/run_config.h"

namespace macaw::scheduler {

// One client of a round. A client drawn m times trains once and counts m-fold.
struct CohortEntry {
  ClientId client;
  uint32_t multiplicity = 1;
  uint64_t load = 0;  // training rows
  // What else a cost may depend on (cost.h); left at nothing by samplers.
  uint64_t steps = 0;      // local steps it will take
  bool has_state = false;  // it has a state to read
  WorkerId state_at{};     // whoever holds its state, or its rows, without a copy being moved;
  WorkerId data_at{};      // 0: all alike
};

// Who trains in a round, sorted by client id.
struct Cohort {
  Round round{};
  std::vector<CohortEntry> entries;
};

// Draws cohorts. A cohort is a function of (seed, round) and the population alone: never of time or
// workers.
class CohortSampler {
 public:
  virtual ~CohortSampler() = default;
  virtual Cohort Sample(Round round) const = 0;
};

// `examples[k]` are client k's training rows; it must outlive the sampler. Errors name the key of
// [cohort] to change.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeSampler(const CohortConfig& config,
                                                           std::span<const uint32_t> examples);
}  // namespace macaw::scheduler
