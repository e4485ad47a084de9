#pragma once

#include <span>

#include "core/vector.h"
#include "plan/attack.h"

namespace macaw::algorithms {

// What hostile clients send under the attacks that look at each honest update: min-max, min-sum and
// mimic. `vector` is the same for all of them.
struct RowsLie {
  FlatVector vector;
  double gamma = 0;  // γ of min-max and min-sum
};

// `honest`: the honest clients' updates, by client id, at least one. Means, deviations and
// distances are plain, of the parameters, and in double. Buffers are the honest mean, mimic's those
// of whom it copies.
RowsLie LieFromRows(const AttackConfig& attack, std::span<const FlatVector* const> honest);

// The plain mean of all elements, computed in double.
FlatVector MeanOfRows(std::span<const FlatVector* const> honest);

}  // namespace macaw::algorithms
