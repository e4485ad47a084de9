#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>

#include "server/engine/evaluation_sums.h"

namespace macaw::server {

// A client's evaluation may have no loss that rows can give. It is not finite, as one beyond
// training::kLargestSum is made: its model has diverged, or its node lies. Or it is below 0, and
// its node lies or has a loss of its own. A mean over clients with it would tell nothing of the
// others, and one below 0 would be the best of the run for good.

// Whether sums over rows have such a loss, and errors (of regression they follow it) not below 0
// either. A program may leave out what follows the loss (NaN).
inline bool HasPossibleLoss(std::span<const double> sums) {
  constexpr size_t kLoss = 1, kErrors = 2;
  constexpr double kRounding = 1e-6;  // of a row: exponentials in single precision
  if (sums.size() <= kLoss) return true;
  if (!std::isfinite(sums[kLoss])) return false;
  if (std::ranges::any_of(sums, [](double sum) { return std::isinf(sum); })) return false;
  const double least = -kRounding * sums[0];
  return sums[kLoss] >= least && !(sums.size() > kErrors && sums[kErrors] < least);
}

// Whether so many of all clients may be left out for it: fewer than half. Where it is more, the
// model has diverged, which the columns have to show.
constexpr bool MayBeLeftOut(size_t without, size_t all) { return without > 0 && 2 * without < all; }

// `sums` without such clients, in each family of which they are few: they are counted in `missing`,
// and their rows in `uncounted`. Nothing: there are none. (Those of training rows are left out by
// EvaluationBoard::Report.)
std::optional<EvaluationSums> WithPossibleLosses(const EvaluationSums& sums);

}  // namespace macaw::server
