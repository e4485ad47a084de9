#include "training/fused/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/fused/linear.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// Longer sums are formed in pieces: shorter chains have smaller rounding errors, and a piece of the
// panels stays in the first-level cache for all rows.
constexpr size_t kPiece = 256;

// The larger one of the sum and its floor. Max is not used, because it drops NaN on some
// instruction sets. A floor of 0 keeps −0 on x86 and makes it 0 on arm64: part of their bits.
HWY_INLINE FloatVector AtLeast(FloatVector floor, FloatVector sum) {
#if HWY_TARGET == HWY_NEON
  return hn::IfThenElse(hn::Le(sum, floor), floor, sum);
#else
  return hn::IfThenElse(hn::Lt(sum, floor), floor, sum);
#endif
}

// Packed: the weights as a panel matrix of in × RoundUp(outputs), then the bias. The positions of a
// sequence are rows like those of a batch.
class LinearBlock final : public Block {
 public:
  explicit LinearBlock(const LinearPlan& plan)
      : Block(plan.in, plan.positions == 1 ? Shape::Flat(plan.outputs)
                                           : Shape::Sequence(plan.positions, plan.outputs)),
        row_(plan.positions == 1 ? plan.in : Shape::Flat(plan.in.width)),
        positions_(plan.positions),
        inputs_(row_.size()),
        outputs_(plan.outputs),
        columns_(RoundUp(plan.outputs)),
        bias_(plan.bias),
        relu_(plan.relu),
        adds_(plan.adds) {}

  std::vector<PackedTensor> tensors() const override {
    std::vector<PackedTensor> tensors = {{0, inputs_ * columns_}};
    if (bias_) tensors.push_back({inputs_ * columns_, columns_});
    return tensors;
  }

  void Pack(std::span<const float* const> tensors, float* packed) const override {
    const bool gaps = inputs_ != row_.elements();
    if (gaps) std::fill_n(packed, inputs_ * columns_, 0.0f);
    HWY_ALIGN float square[kLanes][kLanes] = {};
    ForEachSquare([&](size_t from, size_t lanes, std::span<const size_t> to) {
      if (lanes < kLanes) std::memset(square, 0, sizeof(square));
      for (size_t lane = 0; lane < lanes; ++lane) {
        const float* const row = tensors[0] + from + lane * row_.elements();
        for (size_t k = 0; k < to.size(); ++k) square[k][lane] = row[k];
      }
      for (size_t k = 0; k < to.size(); ++k) std::copy_n(square[k], kLanes, packed + to[k]);
    });
    if (!bias_) return;
    float* const bias = packed + inputs_ * columns_;
    std::fill(std::copy_n(tensors[1], outputs_, bias), bias + columns_, 0.0f);
  }
  void Unpack(const float* packed, std::span<float* const> tensors) const override {
    HWY_ALIGN float square[kLanes][kLanes];
    ForEachSquare([&](size_t from, size_t lanes, std::span<const size_t> to) {
      for (size_t k = 0; k < to.size(); ++k) std::copy_n(packed + to[k], kLanes, square[k]);
      for (size_t lane = 0; lane < lanes; ++lane) {
        float* const row = tensors[0] + from + lane * row_.elements();
        for (size_t k = 0; k < to.size(); ++k) row[k] = square[k][lane];
      }
    });
    if (bias_) std::copy_n(packed + inputs_ * columns_, outputs_, tensors[1]);
  }

  void Forward(const ForwardPass& pass) const override {
    const Floats d;
    HWY_ALIGN static constexpr float kZeros[kLanes] = {};
    const Columns<float> out = {pass.out, columns_};
    // Initial value of the sums, the same for each row.
    Columns<const float> start = {kZeros, 0, 0};
    if (bias_) start = {pass.weights + inputs_ * columns_, 0};
    if (adds_) start = {pass.out, columns_};
    for (size_t k = 0; k < inputs_; k += kPiece) {
      const size_t steps = std::min(kPiece, inputs_ - k);
      const bool clip = relu_ && k + steps == inputs_;
      const FloatVector floor = hn::Set(d, clip ? 0.0f : -std::numeric_limits<float>::infinity());
      Product<Stored::kByRows>(
          pass.n * positions_, columns_, steps, {pass.in + k, row_.stride()},
          {pass.weights + k * kLanes, kLanes, kLanes * inputs_},
          [=](size_t r, size_t p) HWY_ATTR { return hn::Load(Floats(), start.At(r, p)); },
          [=](size_t r, size_t p, FloatVector sum)
              HWY_ATTR { hn::Store(AtLeast(floor, sum), Floats(), out.At(r, p)); });
      start = {pass.out, columns_};
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (relu_) MaskByOutput(pass);
    if (pass.d_in != nullptr) InputGradient(pass);
    if (pass.gradient != nullptr) {
      float* const gradient = pass.gradient;
      WeightGradient(
          pass, [=](size_t at, FloatVector g) HWY_ATTR { hn::Store(g, Floats(), gradient + at); });
    } else if (pass.step != nullptr) {
      // The same bits as a decay of 0, unless a weight is not finite.
      const bool decay = pass.step->weight_decay != 0;
      if (pass.v == nullptr) {
        decay ? Step<true, false>(pass) : Step<false, false>(pass);
      } else {
        decay ? Step<true, true>(pass) : Step<false, true>(pass);
      }
    }
  }
  bool can_step() const override { return true; }

 private:
  // Visits the weights in squares of 16 outputs by 16 inputs (fewer at the edges): calls f(place of
  // the first one in PyTorch's [outputs][inputs], outputs of the square, place of each input's
  // panel row). So each cache line of either side is touched once; rows that lie a multiple of 4 kB
  // apart would compete for the same place in the cache.
  template <typename F>
  void ForEachSquare(const F& f) const {
    const size_t elements = row_.elements();
    const size_t plane = row_.order == Shape::Order::kPlanar     ? elements
                         : row_.order == Shape::Order::kSequence ? row_.width
                                                                 : row_.height * row_.width;
    std::array<size_t, kLanes> to;
    for (size_t panel = 0; panel < outputs_; panel += kLanes) {
      const size_t lanes = std::min(kLanes, outputs_ - panel);
      for (size_t pixel = 0; pixel < plane; pixel += kLanes) {
        const size_t count = std::min(kLanes, plane - pixel);
        // The channels of a pixel are contiguous, and so are the elements of a position.
        for (size_t i = pixel; i < elements; i += plane) {
          for (size_t k = 0; k < count; ++k) to[k] = panel * inputs_ + row_.At(i + k) * kLanes;
          f(panel * elements + i, lanes, std::span<const size_t>(to).first(count));
        }
      }
    }
  }

  template <bool kDecay, bool kV>
  void Step(const BackwardPass& pass) const {
    float* const weights = pass.stepped;
    const float* const v = pass.v;
    const FloatVector lr = hn::Set(Floats(), pass.step->lr);
    const FloatVector decay = hn::Set(Floats(), pass.step->weight_decay);
    WeightGradient(pass, [=](size_t at, FloatVector g) HWY_ATTR {
      const FloatVector w = hn::Load(Floats(), weights + at);
      if constexpr (kV) g = hn::Add(g, hn::Load(Floats(), v + at));
      if constexpr (kDecay) g = hn::Add(g, hn::Mul(decay, w));
      hn::Store(hn::Sub(w, hn::Mul(lr, g)), Floats(), weights + at);
    });
  }

  void MaskByOutput(const BackwardPass& pass) const {
    const Floats d;
    for (size_t i = 0; i < pass.n * positions_ * columns_; i += kWidth) {
      const auto stopped = hn::Le(hn::Load(d, pass.out + i), hn::Zero(d));
      hn::Store(hn::IfThenZeroElse(stopped, hn::Load(d, pass.d_out + i)), d, pass.d_out + i);
    }
  }

  // Calls take(place in the packed weights, a vector of the gradient).
  template <typename Take>
  HWY_INLINE void WeightGradient(const BackwardPass& pass, const Take& take) const {
    const Floats d;
    const Columns<const float> packed = {nullptr, kLanes, kLanes * inputs_};
    const size_t rows = pass.n * positions_;
    Product<Stored::kBySteps>(
        inputs_, columns_, rows, {pass.in, row_.stride()}, {pass.d_out, columns_},
        [](size_t, size_t) HWY_ATTR { return hn::Zero(Floats()); },
        [=](size_t k, size_t p, FloatVector sum) HWY_ATTR { take(packed.Place(k, p), sum); });
    if (!bias_) return;
    for (size_t p = 0; p < columns_; p += kWidth) {
      FloatVector sum = hn::Zero(d);
      for (size_t r = 0; r < rows; ++r) {
        sum = hn::Add(sum, hn::Load(d, pass.d_out + r * columns_ + p));
      }
      take(inputs_ * columns_ + p, sum);
    }
  }

  void InputGradient(const BackwardPass& pass) const {
    constexpr size_t kRows = kTileRows >= 8 ? 4 : 2, kColumns = 4;
    const size_t stride = row_.stride(), all = pass.n * positions_;
    for (size_t k = 0; k < inputs_; k += kColumns) {
      const Columns<const float> b = {pass.weights + k * kLanes, kLanes, kLanes * inputs_};
      WithConstant<kColumns>(std::min(kColumns, inputs_ - k), [&](auto columns) HWY_ATTR {
        EvenPieces(all, kRows, [&](size_t first, size_t count) HWY_ATTR {
          WithConstant<kRows>(count, [&](auto rows) HWY_ATTR {
            DotTile<decltype(rows)::value, decltype(columns)::value>(
                columns_, {pass.d_out + first * columns_, columns_}, b,
                pass.d_in + first * stride + k, stride);
          });
        });
      });
    }
    for (size_t r = 0; r < all; ++r) {
      std::fill(pass.d_in + r * stride + inputs_, pass.d_in + (r + 1) * stride, 0.0f);
    }
  }

  const Shape row_;  // that the weights are multiplied with
  const size_t positions_, inputs_, outputs_, columns_;
  const bool bias_, relu_, adds_;
};

std::unique_ptr<Block> NewLinear(const LinearPlan& plan) {
  return std::make_unique<LinearBlock>(plan);
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training::fused {

std::unique_ptr<Block> MakeLinear(Isa isa, const LinearPlan& plan) {
  MACAW_FOR_ISA(isa, NewLinear, plan);
}

}  // namespace macaw::training::fused
#endif
