#include "training/fused/kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/fused/kernels.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// Must come after foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many floats as a vector has doubles
constexpr size_t kDoubleWidth = HWY_MAX_BYTES / sizeof(double);

enum : size_t { kExamples = 0, kLoss = 1, kCorrect = 2 };  // indices into the metric sums

// Rows whose logarithms and reciprocals are computed together.
constexpr size_t kGroup = 16;

// e^x for x ≤ 0, to one unit in the last place, and exactly 1 at 0. Below −80 it is e^−80, which is
// too small to matter in a sum that contains a 1. Uses the polynomial of Highway's Exp, which is
// slower because it accepts any x.
HWY_INLINE FloatVector ExpOfNegative(FloatVector x) {
  const Floats d;
  const hn::RebindToSigned<Floats> integers;
  const FloatVector shifter = hn::Set(d, 12582912.0f);  // 1.5·2²³: adding it rounds to integers
  x = hn::Max(x, hn::Set(d, -80.0f));
  const FloatVector shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shifter);
  const FloatVector n = hn::Sub(shifted, shifter);
  const FloatVector high = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  const FloatVector f = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), high);  // x − n·ln 2
  FloatVector p = hn::Set(d, 0.000198527618f);
  for (const float c : {0.00139304355f, 0.00833336078f, 0.0416664854f, 0.166666672f, 0.5f}) {
    p = hn::MulAdd(p, f, hn::Set(d, c));
  }
  p = hn::Add(hn::MulAdd(hn::Mul(f, f), p, f), hn::Set(d, 1.0f));
  // The low bits of `shifted` are n: as an exponent, 2ⁿ.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(integers, p), exponent));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE DoubleVector InDouble(FloatVector v) { return hn::PromoteTo(Doubles(), v); }
#else
// The sums of pairs of lanes from a vector's two halves, in double.
HWY_INLINE DoubleVector InDouble(FloatVector v) {
  const hn::Half<Floats> half;
  return hn::Add(hn::PromoteTo(Doubles(), hn::LowerHalf(half, v)),
                 hn::PromoteTo(Doubles(), hn::UpperHalf(half, v)));
}
#endif

// kVectors: vectors per row that hold classes, if known at compile time; 0: any number.
template <size_t kVectors>
class SoftmaxRows {
 public:
  SoftmaxRows(const SoftmaxRule& rule, const Mean& mean)
      : rule_(rule),
        mean_(mean),
        vectors_((rule.classes + kWidth - 1) / kWidth),
        stride_(RoundUp(rule.classes)),
        uniform_(rule.smoothing / static_cast<double>(rule.classes)),
        in_use_(hn::FirstN(Floats(), rule.classes - (vectors_ - 1) * kWidth)) {
    if (uniform_ == 0) return;
    total_weight_ = static_cast<double>(rule.classes);
    if (rule.weights.empty()) return;
    total_weight_ = 0;
    for (const double weight : rule.weights) total_weight_ += weight;
  }

  bool Rate(size_t n, const float* logits, const int64_t* labels, float* gradient,
            std::span<double> sums) {
    double loss = sums[kLoss], correct = 0;
    const double loss_scale = mean_.rows / mean_.divisor;
    const bool plain = uniform_ == 0 && rule_.weights.empty();
    for (size_t first = 0; first < n; first += kGroup) {
      const size_t count = std::min(kGroup, n - first);
      const float* const z = logits + first * stride_;
      float* const e = gradient + first * stride_;
      // One quantity at a time for all rows, so that rows do not wait for each other.
      for (size_t i = 0; i < count; ++i) FindTop(z + i * stride_, i);
      for (size_t i = 0; i < count; ++i) Exponentials(z + i * stride_, i, e + i * stride_);
      for (size_t i = count; i < kGroup; ++i) top_[i] = 0, partition_[i] = 1;
      CloseGroup(count);
      for (size_t i = 0; i < count; ++i) {
        const auto label = static_cast<size_t>(labels[first + i]);
        const float* const row = z + i * stride_;
        loss += LossOf(row, label, log_partition_[i], plain) * loss_scale;
        correct += place_[i] == label ? 1 : 0;
        ToGradient(label, reciprocal_[i], plain, e + i * stride_);
      }
    }
    const Floats d;
    if (!(hn::GetLane(hn::SumOfLanes(d, zeros_)) == 0)) return false;
    sums[kExamples] += static_cast<double>(n);
    sums[kLoss] = loss;
    sums[kCorrect] += correct;
    return true;
  }

 private:
  // Calls f(index) for each vector of a row that holds classes.
  template <typename F>
  HWY_INLINE void ForEachVector(const F& f) const {
    if constexpr (kVectors > 0) {
      MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) f(v);
    } else {
      for (size_t v = 0; v < vectors_; ++v) f(v);
    }
  }
  HWY_INLINE size_t last() const { return kVectors > 0 ? kVectors - 1 : vectors_ - 1; }

  // The largest logit and the first class that has it: the prediction.
  HWY_INLINE void FindTop(const float* z, size_t row) {
    const Floats d;
    const FloatVector lowest = hn::Set(d, std::numeric_limits<float>::lowest());
    FloatVector top = lowest;
    ForEachVector([&](size_t v) HWY_ATTR {
      FloatVector x = hn::Load(d, z + v * kWidth);
      zeros_ = hn::Add(zeros_, hn::Mul(x, hn::Zero(d)));
      if (v == last()) x = hn::IfThenElse(in_use_, x, lowest);
      top = hn::Max(top, x);
    });
    const FloatVector largest = hn::MaxOfLanes(d, top);
    top_[row] = hn::GetLane(largest);
    size_t place = rule_.classes;
    ForEachVector([&](size_t v) HWY_ATTR {
      if (place < rule_.classes) return;
      const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::Load(d, z + v * kWidth), largest));
      if (lane >= 0) place = v * kWidth + static_cast<size_t>(lane);
    });
    place_[row] = place;
  }

  // Writes e^(z − top), with zeros behind the classes, and keeps their sum.
  HWY_INLINE void Exponentials(const float* z, size_t row, float* to) {
    const Floats d;
    const FloatVector shift = hn::Set(d, top_[row]);
    DoubleVector sum = hn::Zero(Doubles());
    ForEachVector([&](size_t v) HWY_ATTR {
      FloatVector e = ExpOfNegative(hn::Sub(hn::Load(d, z + v * kWidth), shift));
      if (v == last()) e = hn::IfThenElseZero(in_use_, e);
      hn::Store(e, d, to + v * kWidth);
      sum = hn::Add(sum, InDouble(e));
    });
    for (size_t c = (last() + 1) * kWidth; c < stride_; c += kWidth) {
      hn::Store(hn::Zero(d), d, to + c);
    }
    partition_[row] = hn::GetLane(hn::SumOfLanes(Doubles(), sum));
  }

  HWY_INLINE void CloseGroup(size_t count) {
    const Doubles dd;
    const DoubleVector one = hn::Set(dd, 1.0), divisor = hn::Set(dd, mean_.divisor);
    for (size_t i = 0; i < count; i += kDoubleWidth) {
      const DoubleVector partition = hn::Load(dd, partition_ + i);
      const DoubleVector top = hn::PromoteTo(dd, hn::Load(HalfFloats(), top_ + i));
      hn::Store(hn::Add(hn::Log(dd, partition), top), dd, log_partition_ + i);
      hn::Store(hn::Div(one, hn::Mul(partition, divisor)), dd, reciprocal_ + i);
    }
  }

  double Weight(size_t label) const { return rule_.weights.empty() ? 1.0 : rule_.weights[label]; }
  // The part of the row's target distribution q that stands on the label alone.
  double Sharp(size_t label) const { return (1.0 - rule_.smoothing) * Weight(label); }

  // −Σ q·log p
  HWY_INLINE double LossOf(const float* z, size_t label, double log_partition, bool plain) const {
    if (plain) return log_partition - z[label];
    double loss = Sharp(label) * (log_partition - z[label]);
    if (uniform_ > 0) {
      for (size_t c = 0; c < rule_.classes; ++c) {
        loss += uniform_ * Weight(c) * (log_partition - z[c]);
      }
    }
    return loss;
  }

  // Turns exponentials into (Σq·p − q) / divisor. The label's element is computed in double,
  // because it is a small difference of nearly equal numbers once a row is learned well.
  HWY_INLINE void ToGradient(size_t label, double reciprocal, bool plain, float* e) const {
    const Floats d;
    const double sharp = plain ? 1.0 : Sharp(label);
    const double scale = plain ? reciprocal : (sharp + uniform_ * total_weight_) * reciprocal;
    double at_label = e[label] * scale;
    const FloatVector factor = hn::Set(d, static_cast<float>(scale));
    if (uniform_ > 0) {
      at_label -= (sharp + uniform_ * Weight(label)) / mean_.divisor;
      for (size_t c = 0; c < rule_.classes; ++c) {
        e[c] = static_cast<float>(e[c] * scale - uniform_ * Weight(c) / mean_.divisor);
      }
      e[label] = static_cast<float>(at_label);
      return;
    }
    at_label -= sharp / mean_.divisor;
    const FloatVector there = hn::Set(d, static_cast<float>(at_label));
    const hn::RebindToSigned<Floats> integers;
    // Written as whole vectors, so that the next reader need not wait for a narrow store.
    ForEachVector([&](size_t v) HWY_ATTR {
      const auto lanes = hn::Iota(integers, static_cast<int32_t>(v * kWidth));
      const auto is_label =
          hn::RebindMask(d, hn::Eq(lanes, hn::Set(integers, static_cast<int32_t>(label))));
      const FloatVector p = hn::Mul(hn::Load(d, e + v * kWidth), factor);
      hn::Store(hn::IfThenElse(is_label, there, p), d, e + v * kWidth);
    });
  }

  const SoftmaxRule& rule_;
  const Mean& mean_;
  const size_t vectors_;
  const size_t stride_;
  const double uniform_;           // the part of q that stands on every class, before its weight
  const hn::Mask<Floats> in_use_;  // lanes of a row's last vector that hold classes
  double total_weight_ = 0;
  FloatVector zeros_ = hn::Zero(Floats());  // all zero, or NaN once a logit was not finite
  HWY_ALIGN float top_[kGroup];
  size_t place_[kGroup];
  HWY_ALIGN double partition_[kGroup];
  HWY_ALIGN double log_partition_[kGroup];
  HWY_ALIGN double reciprocal_[kGroup];
};

bool Softmax(const SoftmaxRule& rule, const Mean& mean, size_t n, const float* logits,
             const int64_t* labels, float* gradient, std::span<double> sums) {
  if (rule.classes <= kWidth) {
    return SoftmaxRows<1>(rule, mean).Rate(n, logits, labels, gradient, sums);
  }
  if (rule.classes <= 2 * kWidth) {
    return SoftmaxRows<2>(rule, mean).Rate(n, logits, labels, gradient, sums);
  }
  return SoftmaxRows<0>(rule, mean).Rate(n, logits, labels, gradient, sums);
}

enum class Momentum { kNone, kHeavyBall, kNesterov };

template <Momentum kMomentum, bool kAnchor, bool kV>
void SgdPiece(const SgdRule& rule, double clip, size_t begin, size_t end,
              const SgdVectors<float>& x) {
  const Floats d;
  const FloatVector scale = hn::Set(d, static_cast<float>(clip));
  const FloatVector mu = hn::Set(d, static_cast<float>(rule.mu));
  const FloatVector decay = hn::Set(d, static_cast<float>(rule.weight_decay));
  const FloatVector rho = hn::Set(d, static_cast<float>(rule.momentum));
  const FloatVector lr = hn::Set(d, static_cast<float>(rule.lr));
  for (size_t i = begin; i < end; i += kWidth) {
    const FloatVector w = hn::Load(d, x.weights.data() + i);
    FloatVector step = hn::Mul(hn::Load(d, x.gradient.data() + i), scale);
    if constexpr (kAnchor) {
      const FloatVector anchor = hn::Load(d, x.anchor.data() + i);
      step = hn::Add(step, hn::Mul(mu, hn::Sub(w, anchor)));
    }
    if constexpr (kV) step = hn::Add(step, hn::Load(d, x.v.data() + i));
    step = hn::Add(step, hn::Mul(decay, w));
    if constexpr (kMomentum != Momentum::kNone) {
      const FloatVector m = hn::Add(hn::Mul(rho, hn::Load(d, x.momentum.data() + i)), step);
      hn::Store(m, d, x.momentum.data() + i);
      step = kMomentum == Momentum::kNesterov ? hn::Add(step, hn::Mul(rho, m)) : m;
    }
    hn::Store(hn::Sub(w, hn::Mul(lr, step)), d, x.weights.data() + i);
  }
}

template <Momentum kMomentum>
void SgdWith(const SgdRule& rule, double scale, size_t begin, size_t end,
             const SgdVectors<float>& x) {
  if (rule.mu != 0) {
    x.v.empty() ? SgdPiece<kMomentum, true, false>(rule, scale, begin, end, x)
                : SgdPiece<kMomentum, true, true>(rule, scale, begin, end, x);
  } else {
    x.v.empty() ? SgdPiece<kMomentum, false, false>(rule, scale, begin, end, x)
                : SgdPiece<kMomentum, false, true>(rule, scale, begin, end, x);
  }
}

void Sgd(const SgdRule& rule, double scale, size_t begin, size_t end, const SgdVectors<float>& x) {
  if (rule.momentum == 0) {
    SgdWith<Momentum::kNone>(rule, scale, begin, end, x);
  } else if (rule.nesterov) {
    SgdWith<Momentum::kNesterov>(rule, scale, begin, end, x);
  } else {
    SgdWith<Momentum::kHeavyBall>(rule, scale, begin, end, x);
  }
}

// Loads the last `count` floats of a row (fewer than a vector has), with zeros behind them.
HWY_INLINE FloatVector LoadTail(const std::byte* from, size_t count) {
  const Floats d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // A masked load does not touch memory that the mask leaves out.
  return hn::MaskedLoad(hn::FirstN(d, count), d, reinterpret_cast<const float*>(from));
#else
  HWY_ALIGN float tail[kWidth] = {};
  std::memcpy(tail, from, count * sizeof(float));
  return hn::Load(d, tail);
#endif
}

// The addresses need not be multiples of 4.
void CopyRows(const std::byte* const* rows, size_t n, size_t width, float* to) {
  const Floats d;
  const size_t stride = RoundUp(width), whole = width / kWidth * kWidth;
  for (size_t r = 0; r < n; ++r, to += stride) {
    size_t i = 0;
#if HWY_TARGET == HWY_SCALAR
    std::memcpy(to, rows[r], whole * sizeof(float));
    i = whole;
#else
    const auto* const from = reinterpret_cast<const float*>(rows[r]);
    for (; i < whole; i += kWidth) hn::Store(hn::LoadU(d, from + i), d, to + i);
#endif
    if (i < width) {
      hn::Store(LoadTail(rows[r] + i * sizeof(float), width - i), d, to + i);
      i += kWidth;
    }
    for (; i < stride; i += kWidth) hn::Store(hn::Zero(d), d, to + i);
  }
}

void Add(const float* more, size_t count, float* sum) {
  const Floats d;
  for (size_t i = 0; i < count; i += kWidth) {
    hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, more + i)), d, sum + i);
  }
}

const Kernels& TheKernels() {
  static constexpr Kernels kernels = {
      .softmax = Softmax, .sgd = Sgd, .copy_rows = CopyRows, .add = Add};
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training::fused {

const Kernels& KernelsOf(Isa isa) { MACAW_FOR_ISA(isa, TheKernels); }

}  // namespace macaw::training::fused
#endif
