#include "scheduler/cost.h"

#include <algorithm>

namespace macaw::scheduler {

std::optional<Costs> GuessedCosts(std::span<const Costs> others) {
  if (others.empty()) return std::nullopt;
  const bool known = std::ranges::any_of(others, &Costs::known);
  const bool in_seconds = std::ranges::any_of(others, &Costs::InSeconds);
  Costs mean{.row = 0, .of_others = in_seconds};
  double count = 0;
  for (const Costs& costs : others) {
    if (known ? !costs.known : costs.InSeconds() != in_seconds) continue;
    mean.fixed += costs.fixed;
    mean.state += costs.state;
    mean.row_load += costs.row_load;
    mean.row += costs.row;
    mean.step += costs.step;
    mean.log_step += costs.log_step;
    count += 1;
  }
  return mean.Slower(1 / count);
}

}  // namespace macaw::scheduler
