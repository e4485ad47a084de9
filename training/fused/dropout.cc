#include <algorithm>
#include <cmath>

#include "training/fused/elementwise.h"

namespace macaw::training::fused {
namespace {

// Plain code, because drawing the words takes most of the time. Keeps one factor per element.
class DropoutBlock final : public Block {
 public:
  DropoutBlock(double p, const Shape& shape)
      : Block(shape, shape),
        dropped_(static_cast<uint32_t>(std::ldexp(p, 32))),
        factor_(static_cast<float>(1.0 / (1.0 - p))) {}

  size_t kept(size_t n) const override { return n * in().stride(); }

  void Forward(const ForwardPass& pass) const override {
    const size_t stride = in().stride(), count = pass.n * stride;
    if (pass.dropout == nullptr) {
      std::copy_n(pass.in, count, pass.out);
      if (pass.kept != nullptr) std::fill_n(pass.kept, count, 1.0f);
      return;
    }
    for (size_t r = 0; r < pass.n; ++r) {
      float* const mask = pass.kept + r * stride;
      std::fill_n(mask, stride, 0.0f);
      for (size_t i = 0; i < in().elements(); ++i) {
        if (pass.dropout->NextU32() >= dropped_) mask[in().At(i)] = factor_;
      }
    }
    for (size_t i = 0; i < count; ++i) pass.out[i] = pass.in[i] * pass.kept[i];
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    const size_t count = pass.n * in().stride();
    for (size_t i = 0; i < count; ++i) pass.d_in[i] = pass.d_out[i] * pass.kept[i];
  }

 private:
  const uint32_t dropped_;  // out of 2^32 words
  const float factor_;
};

}  // namespace

std::unique_ptr<Block> MakeDropout(double p, const Shape& shape) {
  return std::make_unique<DropoutBlock>(p, shape);
}

}  // namespace macaw::training::fused
