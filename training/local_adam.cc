#include "training/local_adam.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/local_adam.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training {
namespace HWY_NAMESPACE {

// One pass over a piece. All instruction sets give the same bits.
template <typename T>
void Update(const AdamNumbers<T>& n, uint64_t count, T* __restrict w, T* __restrict g,
            T* __restrict m, T* __restrict s) {
  const bool mostly_old = n.first_new < T(0.5);
  for (uint64_t i = 0; i < count; ++i) {
    const T d = g[i];
    g[i] = 0;
    // As PyTorch's lerp: computed from the nearer end.
    m[i] = mostly_old ? m[i] + n.first_new * (d - m[i]) : d - (d - m[i]) * n.first_old;
    s[i] = s[i] * n.second_old + n.second_new * d * d;
    const T divisor = std::sqrt(s[i]) / n.root + n.epsilon;
    w[i] = w[i] * n.keep - n.rate * m[i] / divisor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training {
namespace {

// g ← clip·g + μ(w − a) + v + decay·w.
template <typename T>
void Correct(const AdamRule& rule, double clip, uint64_t begin, uint64_t end,
             const AdamVectors<T>& x) {
  const T scale = static_cast<T>(clip);
  const T mu = static_cast<T>(rule.mu);
  const T decay = static_cast<T>(rule.decoupled ? 0.0 : rule.weight_decay);
  T* const g = x.gradient.data();
  const T* const w = x.weights.data();
  if (clip != 1.0) {
    for (uint64_t i = begin; i < end; ++i) g[i] *= scale;
  }
  if (rule.mu != 0) {
    for (uint64_t i = begin; i < end; ++i) g[i] += mu * (w[i] - x.anchor[i]);
  }
  if (!x.v.empty()) {
    for (uint64_t i = begin; i < end; ++i) g[i] += x.v[i];
  }
  if (decay != 0) {
    for (uint64_t i = begin; i < end; ++i) g[i] += decay * w[i];
  }
}

template <typename T>
void UpdateRun(const AdamNumbers<T>& n, uint64_t count, T* w, T* g, T* m, T* s) {
  MACAW_FOR_ISA(BestIsa(), Update, n, count, w, g, m, s);
}

}  // namespace

template <typename T>
AdamNumbers<T> AdamNumbersOf(const AdamRule& rule, uint64_t step) {
  const double t = static_cast<double>(step);
  return {.first_new = static_cast<T>(1.0 - rule.beta1),
          .first_old = static_cast<T>(rule.beta1),
          .second_new = static_cast<T>(1.0 - rule.beta2),
          .second_old = static_cast<T>(rule.beta2),
          .root = static_cast<T>(std::sqrt(1.0 - std::pow(rule.beta2, t))),
          .epsilon = static_cast<T>(rule.epsilon),
          .rate = static_cast<T>(rule.lr / (1.0 - std::pow(rule.beta1, t))),
          .keep = static_cast<T>(rule.decoupled ? 1.0 - rule.lr * rule.weight_decay : 1.0)};
}

template <typename T>
void AdamStep(const AdamRule& rule, uint64_t step, double scale, const Pieces& pieces,
              const AdamVectors<T>& vectors) {
  const AdamNumbers<T> numbers = AdamNumbersOf<T>(rule, step);
  for (const auto& [begin, end] : pieces) {
    Correct(rule, scale, begin, end, vectors);
    UpdateRun(numbers, end - begin, vectors.weights.data() + begin, vectors.gradient.data() + begin,
              vectors.first.data() + begin, vectors.second.data() + begin);
  }
}

template AdamNumbers<float> AdamNumbersOf(const AdamRule&, uint64_t);
template AdamNumbers<double> AdamNumbersOf(const AdamRule&, uint64_t);
template void AdamStep(const AdamRule&, uint64_t, double, const Pieces&, const AdamVectors<float>&);
template void AdamStep(const AdamRule&, uint64_t, double, const Pieces&,
                       const AdamVectors<double>&);

}  // namespace macaw::training
#endif  // HWY_ONCE
