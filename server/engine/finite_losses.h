#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>

#include "server/engine/evaluation_sums.h"

namespace macaw::server {

// A client's evaluation may have no finite loss: its model has diverged, or its node lies. A mean
// over clients with it would be infinite, and tell nothing of the others.

// Whether sums over rows have a loss. A program may leave out what follows it (NaN).
inline bool HasFiniteLoss(std::span<const double> sums) {
  constexpr size_t kLoss = 1;
  if (sums.size() > kLoss && !std::isfinite(sums[kLoss])) return false;
  return std::ranges::none_of(sums, [](double sum) { return std::isinf(sum); });
}

// Whether so many of all clients may be left out for it: fewer than half. Where it is more, the
// model has diverged, which the columns have to show.
constexpr bool MayBeLeftOut(size_t without, size_t all) { return without > 0 && 2 * without < all; }

// `sums` without such clients, in each family of which they are few: they are counted in `missing`,
// and their rows in `uncounted`. Nothing: there are none. (Those of training rows are left out by
// EvaluationBoard::Report.)
std::optional<EvaluationSums> WithFiniteLosses(const EvaluationSums& sums);

}  // namespace macaw::server
