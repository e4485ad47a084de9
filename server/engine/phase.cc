#include "server/engine/phase.h"

#include <algorithm>
#include <set>

namespace macaw::server {

aggregation::GridOrder GridOf(const std::vector<Seat>& seats) {
  aggregation::GridOrder grid{
      .max_weight = 0, .total_weight = 0, .max_multiplicity = 0, .total_multiplicity = 0};
  for (const Seat& seat : seats) {
    const double weight = seat.weight * seat.entry.multiplicity;
    grid.max_weight = std::max(grid.max_weight, weight);
    grid.total_weight += weight;
    grid.max_multiplicity = std::max(grid.max_multiplicity, seat.entry.multiplicity);
    grid.total_multiplicity += seat.entry.multiplicity;
  }
  // A cohort without any rows still needs a valid grid, although all its clients will be left out.
  grid.max_weight = std::max(grid.max_weight, 1.0);
  grid.total_weight = std::max(grid.total_weight, grid.max_weight);
  grid.max_multiplicity = std::max(grid.max_multiplicity, 1u);
  grid.total_multiplicity = std::max<uint64_t>(grid.total_multiplicity, 1);
  return grid;
}

std::vector<uint32_t> AgesOf(const std::vector<Seat>& seats) {
  std::set<uint32_t> staleness;
  for (const Seat& seat : seats) {
    if (seat.staleness > 0) staleness.insert(seat.staleness);
  }
  return {staleness.begin(), staleness.end()};
}

}  // namespace macaw::server
