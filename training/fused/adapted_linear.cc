#include "training/fused/adapted_linear.h"

#include <utility>

namespace macaw::training::fused {
namespace {

// Three linear blocks: W and b; A; and B, whose sums begin with the outputs of the first.
class AdaptedLinearBlock final : public Block {
 public:
  AdaptedLinearBlock(std::unique_ptr<Block> plain, std::unique_ptr<Block> a,
                     std::unique_ptr<Block> b, float scale)
      : Block(plain->in(), plain->out()),
        plain_(std::move(plain)),
        a_(std::move(a)),
        b_(std::move(b)),
        scale_(scale),
        plain_tensors_(plain_->tensors().size()),
        a_at_(EndOf(plain_->tensors())),
        b_at_(a_at_ + EndOf(a_->tensors())) {}

  std::vector<PackedTensor> tensors() const override {
    std::vector<PackedTensor> tensors = plain_->tensors();
    tensors.push_back({a_at_, b_at_ - a_at_});
    tensors.push_back({b_at_, EndOf(b_->tensors())});
    return tensors;
  }
  void Pack(std::span<const float* const> tensors, float* packed) const override {
    plain_->Pack(tensors.first(plain_tensors_), packed);
    a_->Pack(tensors.subspan(plain_tensors_, 1), packed + a_at_);
    b_->Pack(tensors.subspan(plain_tensors_ + 1, 1), packed + b_at_);
  }
  void Unpack(const float* packed, std::span<float* const> tensors) const override {
    plain_->Unpack(packed, tensors.first(plain_tensors_));
    a_->Unpack(packed + a_at_, tensors.subspan(plain_tensors_, 1));
    b_->Unpack(packed + b_at_, tensors.subspan(plain_tensors_ + 1, 1));
  }

  // scale·x·Aᵀ.
  size_t kept(size_t n) const override { return n * a_->out().stride(); }
  // The gradient of x·Aᵀ, and what it gives to that of x.
  size_t scratch(size_t n) const override { return n * (a_->out().stride() + in().stride()); }

  void Forward(const ForwardPass& pass) const override {
    plain_->Forward(pass);
    float* const inner = pass.kept != nullptr ? pass.kept : pass.scratch;
    ForwardPass down = pass;
    down.out = inner;
    down.weights = pass.weights + a_at_;
    a_->Forward(down);
    Scale(pass.n, inner);
    ForwardPass up = pass;
    up.in = inner;
    up.weights = pass.weights + b_at_;
    b_->Forward(up);
  }

  void Backward(const BackwardPass& pass) const override {
    float* const d_inner = pass.scratch;
    const size_t at = plain_tensors_;
    // First, because it masks the gradient by the ReLU.
    BackwardPass up = pass;
    up.in = pass.kept;
    up.weights = pass.weights + b_at_;
    const bool through = pass.d_in != nullptr || (pass.gradient != nullptr && pass.Wants(at));
    up.d_in = through ? d_inner : nullptr;
    up.gradient = GradientAt(pass, b_at_, pass.Wants(at + 1));
    b_->Backward(up);

    BackwardPass plain = pass;
    bool wants = false;
    for (size_t i = 0; i < plain_tensors_; ++i) wants = wants || pass.Wants(i);
    plain.gradient = GradientAt(pass, 0, wants);
    plain_->Backward(plain);
    if (!through) return;

    Scale(pass.n, d_inner);
    BackwardPass down = pass;
    down.weights = pass.weights + a_at_;
    down.out = pass.kept;
    down.d_out = d_inner;
    down.d_in = pass.d_in == nullptr ? nullptr : d_inner + pass.n * a_->out().stride();
    down.gradient = GradientAt(pass, a_at_, pass.Wants(at));
    a_->Backward(down);
    if (pass.d_in == nullptr) return;
    const size_t count = pass.n * in().stride();
    for (size_t i = 0; i < count; ++i) pass.d_in[i] += down.d_in[i];
  }

 private:
  static size_t EndOf(const std::vector<PackedTensor>& tensors) {
    return tensors.back().offset + tensors.back().size;
  }
  static float* GradientAt(const BackwardPass& pass, size_t place, bool wanted) {
    return pass.gradient == nullptr || !wanted ? nullptr : pass.gradient + place;
  }
  void Scale(size_t n, float* inner) const {
    if (scale_ == 1) return;
    const size_t count = n * a_->out().stride();
    for (size_t i = 0; i < count; ++i) inner[i] *= scale_;
  }

  const std::unique_ptr<Block> plain_, a_, b_;
  const float scale_;
  const size_t plain_tensors_;  // W, and b if there is one
  const size_t a_at_, b_at_;    // in the packed weights
};

}  // namespace

std::unique_ptr<Block> MakeAdaptedLinear(Isa isa, const LinearPlan& plan, size_t rank,
                                         double scale) {
  LinearPlan plain = plan, down = plan, up = plan;
  plain.relu = down.relu = false;
  down.outputs = rank;
  down.bias = up.bias = false;
  std::unique_ptr<Block> a = MakeLinear(isa, down);
  up.in = a->out();
  up.adds = true;
  return std::make_unique<AdaptedLinearBlock>(MakeLinear(isa, plain), std::move(a),
                                              MakeLinear(isa, up), static_cast<float>(scale));
}

}  // namespace macaw::training::fused
