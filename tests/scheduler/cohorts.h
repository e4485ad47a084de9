#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "scheduler/cohort.h"
#include "scheduler/plan.h"
#include "testing/virtual_round.h"

namespace macaw::scheduler::fixtures {

inline Cohort MakeCohort(const std::vector<uint64_t>& loads, Round round = Round(1)) {
  Cohort cohort{.round = round};
  for (size_t i = 0; i < loads.size(); ++i) {
    cohort.entries.push_back(
        {.client = ClientId(i), .load = loads[i], .steps = (loads[i] + 9) / 10});
  }
  return cohort;
}

inline std::vector<uint64_t> RandomLoads(RandomStream& stream, size_t count, uint64_t most = 1000) {
  std::vector<uint64_t> loads(count);
  for (uint64_t& load : loads) load = 1 + stream.Below(most);
  return loads;
}

// Times with a log-normal factor of mean 1 and this standard deviation.
inline double NoisyFactor(RandomStream& stream, double noise) {
  const double variance = std::log1p(noise * noise);
  return std::exp(std::sqrt(variance) * stream.Normal() - variance / 2);
}

}  // namespace macaw::scheduler::fixtures
