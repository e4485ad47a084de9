#include "training/fused/elementwise.h"

namespace macaw::training::fused {
namespace {

// Zeros between the elements stay zeros.
class ScaleBlock final : public Block {
 public:
  ScaleBlock(double factor, const Shape& shape)
      : Block(shape, shape), factor_(static_cast<float>(factor)) {}

  void Forward(const ForwardPass& pass) const override {
    const size_t count = pass.n * in().stride();
    for (size_t i = 0; i < count; ++i) pass.out[i] = factor_ * pass.in[i];
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    const size_t count = pass.n * in().stride();
    for (size_t i = 0; i < count; ++i) pass.d_in[i] = factor_ * pass.d_out[i];
  }

 private:
  const float factor_;
};

}  // namespace

std::unique_ptr<Block> MakeScale(double factor, const Shape& shape) {
  return std::make_unique<ScaleBlock>(factor, shape);
}

}  // namespace macaw::training::fused
