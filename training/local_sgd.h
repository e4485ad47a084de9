#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/vector.h"
#include "plan/local.h"

namespace macaw::training {

// The parameters of a local step. Order: gradient → norm clip → affine correction → weight decay
// and momentum → update.
struct SgdRule {
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double clip_norm = 0;  // 0: none
  double mu = 0;         // of the affine correction

  static SgdRule Of(const LocalConfig& local, double mu) {
    return {local.lr, local.momentum, local.nesterov, local.weight_decay, local.clip_norm, mu};
  }
};

// The flat vectors of a step, all of the same length. `momentum` is empty without momentum,
// `anchor` if mu is 0, `v` if the correction has none.
template <typename T>
struct SgdVectors {
  std::span<T> weights;
  std::span<T> gradient;  // zeroed by the step: the next backward pass adds into it
  std::span<T> momentum;
  std::span<const T> anchor;
  std::span<const T> v;
};

// The elements that move, as [begin, end) pieces of a flat vector in ascending order.
using Pieces = std::vector<std::pair<uint64_t, uint64_t>>;
// The pieces of the layout's parameters; `trainable` is per entry, null: all.
Pieces TrainablePieces(const ParameterLayout& layout, const std::vector<bool>* trainable);

// ‖g‖₂ over the pieces, in double and in a fixed order.
template <typename T>
double NormOf(std::span<const T> gradient, const Pieces& pieces);

// The factor by which the clip multiplies the gradient.
inline double ClipFactor(double clip_norm, double norm) {
  return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1.0;
}

// One step over the pieces, in one pass over memory. `scale` is the factor of the norm clip.
// Elements outside the pieces are not changed.
template <typename T>
void SgdStep(const SgdRule& rule, double scale, const Pieces& pieces, const SgdVectors<T>& vectors);

// FedNova's ‖a‖₁ (Wang et al. 2020, §4): the displacement of the same optimizer, divided by −η, of
// one weight that starts at 0 and has the constant gradient 1. Momentum and the proximal μ affect
// it; weight decay and clipping do not, because they belong to the gradient.
class StepNorm {
 public:
  explicit StepNorm(const SgdRule& rule) : rule_(rule) {}
  void Step();
  double value() const { return value_; }

 private:
  SgdRule rule_;
  double momentum_ = 0;
  double value_ = 0;  // −w/η
};

}  // namespace macaw::training
