#pragma once

#include <cstddef>
#include <span>

#include "training/api/stage.h"

namespace macaw::training {

// The outcome of the least mean loss, the first of equals: one model of several. A loss that is not
// finite is above all others.
size_t LeastLoss(std::span<const StageOutcome> outcomes);

// Whether the client of these stages can count. All metric sums have to be finite and within the
// limit (kLargestSum). Of a rule with several models (`compares`) one such kLoss stage is enough: a
// client that leaves a model alone may still train another one.
bool LossesCanCount(std::span<const Stage> stages, std::span<const StageOutcome> outcomes,
                    bool compares = false);

}  // namespace macaw::training
