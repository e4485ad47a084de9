#include <algorithm>

#include "training/fused/elementwise.h"

namespace macaw::training::fused {
namespace {

// Where a program ends with a flatten, its outputs have to lie as the loss reads them; a linear
// block behind a flatten reads any layout instead.
class FlattenBlock final : public Block {
 public:
  explicit FlattenBlock(const Shape& shape) : Block(shape, Shape::Flat(shape.elements())) {}

  void Forward(const ForwardPass& pass) const override {
    const size_t elements = in().elements(), from = in().stride(), to = out().stride();
    for (size_t r = 0; r < pass.n; ++r) {
      float* const example = pass.out + r * to;
      for (size_t i = 0; i < elements; ++i) example[i] = pass.in[r * from + in().At(i)];
      std::fill(example + elements, example + to, 0.0f);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    const size_t elements = in().elements(), from = out().stride(), to = in().stride();
    for (size_t r = 0; r < pass.n; ++r) {
      float* const example = pass.d_in + r * to;
      std::fill_n(example, to, 0.0f);
      for (size_t i = 0; i < elements; ++i) example[in().At(i)] = pass.d_out[r * from + i];
    }
  }
};

}  // namespace

std::unique_ptr<Block> MakeFlatten(const Shape& shape) {
  return std::make_unique<FlattenBlock>(shape);
}

}  // namespace macaw::training::fused
