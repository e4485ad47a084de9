#include "algorithms/api/description.h"

#include <algorithm>

namespace macaw::algorithms {

uint64_t MostClients(const Setup& setup) {
  const CohortConfig& cohort = setup.cohort;
  if (cohort.straggler_policy == "drop" && cohort.straggler_fraction >= 1) return 0;
  // A Poisson cohort has any number of clients, and `size` on average.
  const uint64_t asked = cohort.sampling == "poisson" ? setup.clients : cohort.size;
  return setup.clients == 0 ? cohort.size : std::min(asked, setup.clients);
}

double MeanClients(const Setup& setup) {
  const CohortConfig& cohort = setup.cohort;
  auto mean = static_cast<double>(std::min(MostClients(setup), cohort.size));
  if (cohort.sampling == "available" && setup.clients > 0)
    mean = std::min(mean, cohort.availability * static_cast<double>(setup.clients));
  if (cohort.straggler_policy == "drop") mean *= 1 - cohort.straggler_fraction;
  return mean;
}

}  // namespace macaw::algorithms
