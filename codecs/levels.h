#pragma once

#include <span>

#include "core/random.h"

namespace macaw::codecs {

// The least float with `levels` · step ≥ `largest`, near enough; 0 for 0. Not finite if `largest`
// is not, or is beyond float's range.
float StepFor(double largest, int levels);

// step · k, as the wire form looks for it.
template <typename T>
T LevelOf(float step, int k) {
  return static_cast<T>(static_cast<float>(static_cast<double>(step) * k));
}

// Stochastic rounding: each number becomes one of its two neighbours among the multiples of `step`,
// with probabilities that make its mean the number itself. Draws one number for each value. Values
// of a step of 0 become 0, and those of a step that is not finite stay as they are. T is float or
// double.
template <typename T>
void RoundToLevels(std::span<T> values, float step, RandomStream& random);

}  // namespace macaw::codecs
