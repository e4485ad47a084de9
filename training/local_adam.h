#pragma once

#include <cstdint>
#include <span>

#include "plan/local.h"
#include "training/adam_numbers.h"
#include "training/local_sgd.h"

namespace macaw::training {

// Adam (Kingma and Ba, ICLR 2015, algorithm 1) and AdamW (Loshchilov and Hutter, ICLR 2019,
// algorithm 2). The operations are in PyTorch's order, so that a step on equal numbers gives equal
// results: gradient → norm clip → affine correction → weight decay → moments → update. AdamW
// subtracts lr · weight_decay of the weights directly and keeps the decay out of the moments.
struct AdamRule {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
  double mu = 0;           // of the affine correction

  static bool IsFor(const LocalConfig& local) {
    return local.optimizer == "adam" || local.optimizer == "adamw";
  }

  static AdamRule Of(const LocalConfig& local, double mu) {
    return {.lr = local.lr,
            .beta1 = local.beta1,
            .beta2 = local.beta2,
            .epsilon = local.epsilon,
            .weight_decay = local.weight_decay,
            .decoupled = local.optimizer == "adamw",
            .mu = mu};
  }
};

// The flat vectors of a step, all of the same length. `anchor` is empty if mu is 0, `v` if the
// correction has none.
template <typename T>
struct AdamVectors {
  std::span<T> weights;
  std::span<T> gradient;  // zeroed by the step: the next backward pass adds into it
  std::span<T> first;     // moving mean of the gradient; zero before step 1
  std::span<T> second;    // moving mean of its square; zero before step 1
  std::span<const T> anchor;
  std::span<const T> v;
};

// The constants of step number `step` (1, 2, …).
template <typename T>
AdamNumbers<T> AdamNumbersOf(const AdamRule& rule, uint64_t step);

// Step number `step` over the pieces; other elements are not changed. `scale` is the
// factor of the norm clip.
template <typename T>
void AdamStep(const AdamRule& rule, uint64_t step, double scale, const Pieces& pieces,
              const AdamVectors<T>& vectors);

}  // namespace macaw::training
