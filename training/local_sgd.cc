#include "training/local_sgd.h"

#include <array>
#include <cmath>

namespace macaw::training {
namespace {

enum class Momentum { kNone, kHeavyBall, kNesterov };

// The whole step of one element is a few operations on values that are read once. The compiler
// vectorises it, because the pointers are restrict and the cases are template arguments. No
// operation is fused or reordered (-ffp-contract=off), so every vector width gives the same bits.
template <typename T, Momentum kMomentum, bool kAnchor, bool kV>
void StepPiece(const SgdRule& rule, double clip, uint64_t count, T* __restrict w, T* __restrict g,
               T* __restrict m, const T* __restrict anchor, const T* __restrict v) {
  const T scale = static_cast<T>(clip);
  const T mu = static_cast<T>(rule.mu);
  const T decay = static_cast<T>(rule.weight_decay);
  const T rho = static_cast<T>(rule.momentum);
  const T lr = static_cast<T>(rule.lr);
  for (uint64_t i = 0; i < count; ++i) {
    T d = g[i] * scale;
    g[i] = 0;
    if constexpr (kAnchor) d += mu * (w[i] - anchor[i]);
    if constexpr (kV) d += v[i];
    d += decay * w[i];
    if constexpr (kMomentum != Momentum::kNone) {
      m[i] = rho * m[i] + d;
      d = kMomentum == Momentum::kNesterov ? d + rho * m[i] : m[i];
    }
    w[i] -= lr * d;
  }
}

template <typename T, Momentum kMomentum>
void StepWith(const SgdRule& rule, double scale, const Pieces& pieces, const SgdVectors<T>& x) {
  const bool anchor = rule.mu != 0;
  const bool constant = !x.v.empty();
  const auto step =
      !anchor
          ? (constant ? StepPiece<T, kMomentum, false, true>
                      : StepPiece<T, kMomentum, false, false>)
          : (constant ? StepPiece<T, kMomentum, true, true> : StepPiece<T, kMomentum, true, false>);
  for (const auto& [begin, end] : pieces) {
    step(rule, scale, end - begin, x.weights.data() + begin, x.gradient.data() + begin,
         kMomentum == Momentum::kNone ? nullptr : x.momentum.data() + begin,
         anchor ? x.anchor.data() + begin : nullptr, constant ? x.v.data() + begin : nullptr);
  }
}

}  // namespace

Pieces TrainablePieces(const ParameterLayout& layout, const std::vector<bool>* trainable) {
  Pieces pieces;
  for (size_t i = 0; i < layout.entries().size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    if (entry.group != Group::kParameter || (trainable != nullptr && !(*trainable)[i])) continue;
    // Gaps between neighbours are zero in every vector and stay zero, so adjacent tensors form one
    // piece.
    const bool joins =
        i > 0 && !pieces.empty() &&
        pieces.back().second == layout.entries()[i - 1].offset + layout.entries()[i - 1].size;
    if (joins) {
      pieces.back().second = entry.offset + entry.size;
    } else {
      pieces.emplace_back(entry.offset, entry.offset + entry.size);
    }
  }
  return pieces;
}

template <typename T>
double NormOf(std::span<const T> gradient, const Pieces& pieces) {
  constexpr uint64_t kLanes =
      8;  // independent sums, so that the loop vectorises without reordering
  std::array<double, kLanes> lanes{};
  for (const auto& [begin, end] : pieces) {
    const T* g = gradient.data() + begin;
    const uint64_t count = end - begin;
    const uint64_t whole = count / kLanes * kLanes;
    for (uint64_t i = 0; i < whole; i += kLanes) {
      for (uint64_t lane = 0; lane < kLanes; ++lane) {
        const double value = g[i + lane];
        lanes[lane] += value * value;
      }
    }
    for (uint64_t i = whole; i < count; ++i) {
      const double value = g[i];
      lanes[i - whole] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return std::sqrt(sum);
}

template <typename T>
void SgdStep(const SgdRule& rule, double scale, const Pieces& pieces,
             const SgdVectors<T>& vectors) {
  if (rule.momentum == 0) {
    StepWith<T, Momentum::kNone>(rule, scale, pieces, vectors);
  } else if (rule.nesterov) {
    StepWith<T, Momentum::kNesterov>(rule, scale, pieces, vectors);
  } else {
    StepWith<T, Momentum::kHeavyBall>(rule, scale, pieces, vectors);
  }
}

void StepNorm::Step() {
  // In units of −η: w = −η·value, so μ·w = −ημ·value.
  double d = 1.0 - rule_.lr * rule_.mu * value_;
  if (rule_.momentum != 0) {
    momentum_ = rule_.momentum * momentum_ + d;
    d = rule_.nesterov ? d + rule_.momentum * momentum_ : momentum_;
  }
  value_ += d;
}

template double NormOf(std::span<const float>, const Pieces&);
template double NormOf(std::span<const double>, const Pieces&);
template void SgdStep(const SgdRule&, double, const Pieces&, const SgdVectors<float>&);
template void SgdStep(const SgdRule&, double, const Pieces&, const SgdVectors<double>&);

}  // namespace macaw::training
