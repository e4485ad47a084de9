#pragma once

namespace macaw::training {

// The constants of one step of Adam, rounded once to the vectors' type (training/local_adam.h).
// Plain data, which a device's kernel is given, too.
template <typename T>
struct AdamNumbers {
  T first_new = 0;  // 1 − β₁
  T first_old = 0;  // β₁
  T second_new = 0, second_old = 0;
  T root = 0;  // √(1 − β₂ᵗ)
  T epsilon = 0;
  T rate = 0;  // η / (1 − β₁ᵗ)
  T keep = 1;  // 1 − η·decay if the decay is decoupled
};

}  // namespace macaw::training
