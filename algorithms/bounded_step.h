#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "core/vector.h"

namespace macaw::algorithms {

// y ← y + (factor·x into [−most, most]), for a server half whose factor comes from numbers that
// clients say, such as how many steps they took. Each of them may be a lie within its channel's
// bound, and so the factor may be anything: with run.contribution_bound as `most` no coordinate
// moves farther than the update of one client may. The same bits as Axpy where nothing is held
// back. An infinite factor counts as the largest number, so that 0 times it is 0.
inline void AddWithin(double most, double factor, ConstVectorView x, VectorView y) {
  DispatchDType(y.dtype(), [&]<typename T>(T) {
    constexpr double kLargest = std::numeric_limits<T>::max();
    const T bound = static_cast<T>(std::min(most, kLargest));
    const T f = static_cast<T>(std::clamp(factor, -kLargest, kLargest));
    const std::span<const T> from = x.As<T>();
    const std::span<T> into = y.As<T>();
    for (size_t i = 0; i < into.size(); ++i) into[i] += std::clamp(f * from[i], -bound, bound);
  });
}

}  // namespace macaw::algorithms
