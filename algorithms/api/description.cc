#include "algorithms/api/description.h"

#include <algorithm>
#include <utility>

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

RowsOfTurn Passes(double steps, double all) {
  return [steps, all](const LocalTurn& turn) {
    return steps * static_cast<double>(RowsPassed(turn)) + all * static_cast<double>(turn.rows);
  };
}

RowsOfTurn RowsOfTurnOf(const Description& rule, const Setup& setup) {
  // As the trainers do with batch norm (training/batch_order.h).
  const bool joins = setup.layout->parameter_size() < setup.layout->size();
  RowsOfTurn passes = rule.passes ? rule.passes(setup) : Passes(1);
  const auto rows = [passes = std::move(passes), joins](LocalTurn turn) {
    turn.joins = joins;
    return passes(turn);
  };
  return {rows, joins};
}

}  // namespace macaw::algorithms
