#include "training/fused/elementwise.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/fused/elementwise.cc"
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

// Each function computes its value, and its derivative from the value.
struct Relu {
  static constexpr bool kKeepsZero = true;
  // Max is not used, because it drops NaN on some instruction sets. −0 becomes 0.
  static HWY_INLINE FloatVector Value(FloatVector x) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(Floats())), x);
  }
  static HWY_INLINE FloatVector Back(FloatVector y, FloatVector d_y) {
    return hn::IfThenZeroElse(hn::Le(y, hn::Zero(Floats())), d_y);
  }
};
struct Tanh {
  static constexpr bool kKeepsZero = true;
  static HWY_INLINE FloatVector Value(FloatVector x) { return hn::Tanh(Floats(), x); }
  static HWY_INLINE FloatVector Back(FloatVector y, FloatVector d_y) {
    return hn::Mul(d_y, hn::NegMulAdd(y, y, hn::Set(Floats(), 1.0f)));
  }
};
struct Sigmoid {
  static constexpr bool kKeepsZero = false;
  static HWY_INLINE FloatVector Value(FloatVector x) {
    const Floats d;
    const FloatVector one = hn::Set(d, 1.0f);
    // e^88 is about the largest float; the result is 0 or 1 long before.
    const FloatVector bounded = hn::Clamp(hn::Neg(x), hn::Set(d, -88.0f), hn::Set(d, 88.0f));
    const FloatVector value = hn::Div(one, hn::Add(one, hn::Exp(d, bounded)));
    return hn::IfThenElse(hn::IsNaN(x), x, value);  // bounds drop NaN on some instruction sets
  }
  static HWY_INLINE FloatVector Back(FloatVector y, FloatVector d_y) {
    return hn::Mul(d_y, hn::NegMulAdd(y, y, y));
  }
};

template <typename F>
class ElementwiseBlock final : public Block {
 public:
  explicit ElementwiseBlock(const Shape& shape) : Block(shape, shape) {}

  void Forward(const ForwardPass& pass) const override {
    const Floats d;
    for (size_t i = 0; i < pass.n * in().stride(); i += kWidth) {
      hn::Store(F::Value(hn::Load(d, pass.in + i)), d, pass.out + i);
    }
    if constexpr (!F::kKeepsZero) {
      for (size_t r = 0; r < pass.n; ++r) ClearPadding(pass.out + r * out().stride());
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    const Floats d;
    for (size_t i = 0; i < pass.n * in().stride(); i += kWidth) {
      hn::Store(F::Back(hn::Load(d, pass.out + i), hn::Load(d, pass.d_out + i)), d, pass.d_in + i);
    }
  }

 private:
  void ClearPadding(float* example) const {
    const Shape& shape = out();
    if (shape.order == Shape::Order::kInterleaved && shape.channels < shape.pitch) {
      for (float* pixel = example; pixel < example + shape.size(); pixel += shape.pitch) {
        std::fill(pixel + shape.channels, pixel + shape.pitch, 0.0f);
      }
    }
    if (shape.order == Shape::Order::kSequence) {
      for (float* line = example; line < example + shape.size(); line += shape.pitch) {
        std::fill(line + shape.width, line + shape.pitch, 0.0f);
      }
    }
    std::fill(example + shape.size(), example + shape.stride(), 0.0f);
  }
};

std::unique_ptr<Block> NewElementwise(Function function, const Shape& shape) {
  switch (function) {
    case Function::kRelu:
      return std::make_unique<ElementwiseBlock<Relu>>(shape);
    case Function::kTanh:
      return std::make_unique<ElementwiseBlock<Tanh>>(shape);
    case Function::kSigmoid:
      return std::make_unique<ElementwiseBlock<Sigmoid>>(shape);
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training::fused {

std::unique_ptr<Block> MakeElementwise(Isa isa, Function function, const Shape& shape) {
  MACAW_FOR_ISA(isa, NewElementwise, function, shape);
}

}  // namespace macaw::training::fused
#endif
