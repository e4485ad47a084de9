#include "training/fused/kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/fused/kernels.cc"
#include "training/fused/targets.h"
// targets.h comes before what reads it.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// The same here.
#include "hwy/contrib/math/math-inl.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many as a vector has doubles
constexpr size_t kDoubleWidth = HWY_MAX_BYTES / sizeof(double);

enum : size_t { kExamples = 0, kLoss = 1, kCorrect = 2 };  // of the metric sums

// Rows whose logarithms and reciprocals are formed together.
constexpr size_t kGroup = 16;

// e^x for x ≤ 0, to a unit in the last place; e^−80 for what is below that, where it no longer
// matters to a sum that holds a 1. Exactly 1 at 0. The polynomial is that of Highway's Exp, which
// is slower because it takes any x.
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

class SoftmaxRows {
 public:
  SoftmaxRows(const SoftmaxRule& rule, const Mean& mean)
      : rule_(rule),
        mean_(mean),
        stride_(RoundUp(rule.classes)),
        uniform_(rule.smoothing / static_cast<double>(rule.classes)) {
    if (uniform_ == 0) return;
    total_weight_ = static_cast<double>(rule.classes);
    if (rule.weights.empty()) return;
    total_weight_ = 0;
    for (const double weight : rule.weights) total_weight_ += weight;
  }

  bool Rate(size_t n, const float* logits, const int64_t* labels, float* gradient,
            std::span<double> sums) {
    double loss = sums[kLoss], correct = 0;
    for (size_t first = 0; first < n; first += kGroup) {
      const size_t count = std::min(kGroup, n - first);
      const float* const z = logits + first * stride_;
      float* const e = gradient + first * stride_;
      for (size_t i = 0; i < count; ++i) {
        top_[i] = Top(z + i * stride_);
        partition_[i] = Exponentials(z + i * stride_, top_[i], e + i * stride_);
      }
      for (size_t i = count; i < kGroup; ++i) top_[i] = 0, partition_[i] = 1;
      CloseGroup();
      const double loss_scale = mean_.rows / mean_.divisor;
      for (size_t i = 0; i < count; ++i) {
        const size_t label = static_cast<size_t>(labels[first + i]);
        const float* const row = z + i * stride_;
        loss += LossOf(row, label, log_partition_[i]) * loss_scale;
        correct += IsFirstOfLargest(row, static_cast<float>(top_[i]), label) ? 1 : 0;
        ToGradient(label, reciprocal_[i], e + i * stride_);
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
  HWY_INLINE float Top(const float* z) {
    const Floats d;
    const FloatVector lowest = hn::Set(d, std::numeric_limits<float>::lowest());
    FloatVector top = lowest;
    for (size_t c = 0; c < rule_.classes; c += kWidth) {
      const FloatVector v = hn::Load(d, z + c);
      zeros_ = hn::Add(zeros_, hn::Mul(v, hn::Zero(d)));
      top = hn::Max(top, hn::IfThenElse(hn::FirstN(d, rule_.classes - c), v, lowest));
    }
    return hn::GetLane(hn::MaxOfLanes(d, top));
  }

  // Writes e^(z − top), zeros behind the classes; returns their sum.
  HWY_INLINE double Exponentials(const float* z, double top, float* to) const {
    const Floats d;
    const Doubles dd;
    const FloatVector shift = hn::Set(d, static_cast<float>(top));
    DoubleVector sum = hn::Zero(dd);
    size_t c = 0;
    for (; c < rule_.classes; c += kWidth) {
      const FloatVector e = ExpOfNegative(hn::Sub(hn::Load(d, z + c), shift));
      hn::Store(hn::IfThenElseZero(hn::FirstN(d, rule_.classes - c), e), d, to + c);
      for (size_t h = c; h < c + kWidth; h += kDoubleWidth) {
        sum = hn::Add(sum, hn::PromoteTo(dd, hn::Load(HalfFloats(), to + h)));
      }
    }
    for (; c < stride_; c += kWidth) hn::Store(hn::Zero(d), d, to + c);
    return hn::GetLane(hn::SumOfLanes(dd, sum));
  }

  HWY_INLINE void CloseGroup() {
    const Doubles dd;
    const DoubleVector one = hn::Set(dd, 1.0), divisor = hn::Set(dd, mean_.divisor);
    for (size_t i = 0; i < kGroup; i += kDoubleWidth) {
      const DoubleVector partition = hn::Load(dd, partition_ + i);
      hn::Store(hn::Add(hn::Log(dd, partition), hn::Load(dd, top_ + i)), dd, log_partition_ + i);
      hn::Store(hn::Div(one, hn::Mul(partition, divisor)), dd, reciprocal_ + i);
    }
  }

  double Weight(size_t label) const { return rule_.weights.empty() ? 1.0 : rule_.weights[label]; }
  // Of the row's target distribution q: what stands on the label alone.
  double Sharp(size_t label) const { return (1.0 - rule_.smoothing) * Weight(label); }

  // −Σ q·log p
  HWY_INLINE double LossOf(const float* z, size_t label, double log_partition) const {
    double loss = Sharp(label) * (log_partition - z[label]);
    if (uniform_ > 0) {
      for (size_t c = 0; c < rule_.classes; ++c) {
        loss += uniform_ * Weight(c) * (log_partition - z[c]);
      }
    }
    return loss;
  }

  // Whether the row's prediction, the first of its largest logits, is the label.
  HWY_INLINE bool IsFirstOfLargest(const float* z, float top, size_t label) const {
    const Floats d;
    bool first = z[label] == top;
    for (size_t c = 0; c < label; c += kWidth) {
      const auto equal = hn::Eq(hn::Load(d, z + c), hn::Set(d, top));
      first = first && hn::AllFalse(d, hn::And(equal, hn::FirstN(d, label - c)));
    }
    return first;
  }

  // Turns exponentials into (Σq·p − q) / divisor, in double: where a row is learned well, that is
  // what is left of two nearly equal numbers.
  HWY_INLINE void ToGradient(size_t label, double reciprocal, float* e) const {
    const Doubles dd;
    const HalfFloats half;
    const double sharp = Sharp(label);
    const double scale = (sharp + uniform_ * total_weight_) * reciprocal;
    const double label_exponential = e[label];
    const DoubleVector factor = hn::Set(dd, scale);
    for (size_t c = 0; c < rule_.classes; c += kDoubleWidth) {
      const DoubleVector p = hn::Mul(hn::PromoteTo(dd, hn::Load(half, e + c)), factor);
      hn::Store(hn::DemoteTo(half, p), half, e + c);
    }
    double q = sharp;
    if (uniform_ > 0) {
      q += uniform_ * Weight(label);
      for (size_t c = 0; c < rule_.classes; ++c) {
        e[c] = static_cast<float>(e[c] - uniform_ * Weight(c) / mean_.divisor);
      }
    }
    e[label] = static_cast<float>(label_exponential * scale - q / mean_.divisor);
  }

  const SoftmaxRule& rule_;
  const Mean& mean_;
  const size_t stride_;
  const double uniform_;  // of q: what stands on every class, before its weight
  double total_weight_ = 0;
  FloatVector zeros_ = hn::Zero(Floats());  // NaN once a logit was not finite
  HWY_ALIGN double top_[kGroup];
  HWY_ALIGN double partition_[kGroup];
  HWY_ALIGN double log_partition_[kGroup];
  HWY_ALIGN double reciprocal_[kGroup];
};

bool Softmax(const SoftmaxRule& rule, const Mean& mean, size_t n, const float* logits,
             const int64_t* labels, float* gradient, std::span<double> sums) {
  return SoftmaxRows(rule, mean).Rate(n, logits, labels, gradient, sums);
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

// Copies whole vectors from any address, even one that is no multiple of 4; returns how far it
// came.
template <class D>
HWY_INLINE size_t CopyVectors(D, const std::byte* from, size_t begin, size_t end, float* to) {
  constexpr size_t kFloats = hn::MaxLanes(D());
  for (; begin + kFloats <= end; begin += kFloats) {
#if HWY_TARGET == HWY_SCALAR
    std::memcpy(to + begin, from + begin * sizeof(float), sizeof(float));
#else
    const auto* place = reinterpret_cast<const float*>(from + begin * sizeof(float));
    hn::StoreU(hn::LoadU(D(), place), D(), to + begin);
#endif
  }
  return begin;
}

void CopyRows(const std::byte* const* rows, size_t n, size_t width, float* to) {
  const Floats d;
  const size_t stride = RoundUp(width);
  for (size_t r = 0; r < n; ++r, to += stride) {
    for (size_t i = width / kWidth * kWidth; i < stride; i += kWidth) {
      hn::Store(hn::Zero(d), d, to + i);
    }
    size_t done = CopyVectors(d, rows[r], 0, width, to);
    if (kWidth > 4) done = CopyVectors(hn::CappedTag<float, 4>(), rows[r], done, width, to);
    for (; done < width; ++done) {
      std::memcpy(to + done, rows[r] + done * sizeof(float), sizeof(float));
    }
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
