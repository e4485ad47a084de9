#include "training/fused/conv.h"

#include <algorithm>

#include "training/fused/conv_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/fused/conv.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "training/fused/conv_dense-inl.h"
#include "training/fused/conv_forward-inl.h"
#include "training/fused/conv_routed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// Keeps the padded images of a batch, unless the input already has that form, and the place of each
// maximum of the pool.
class ConvBlock final : public Block {
 public:
  explicit ConvBlock(const ConvPlan& plan) : ConvBlock(ConvLayout(plan)) {}

  std::vector<PackedTensor> tensors() const override {
    std::vector<PackedTensor> tensors = {{0, c_.weight_floats()}};
    if (c_.plan.bias) tensors.push_back({c_.weight_floats(), c_.lanes});
    return tensors;
  }
  void Pack(std::span<const float* const> tensors, float* packed) const override {
    c_.Pack(tensors, packed);
  }
  void Unpack(const float* packed, std::span<float* const> tensors) const override {
    c_.Unpack(packed, tensors);
  }

  size_t kept(size_t n) const override {
    return RoutesAt(n) +
           (pooled() ? RoundUp((n * RoutesOf() + sizeof(float) - 1) / sizeof(float)) : 0);
  }
  size_t scratch(size_t) const override {
    const size_t forward = c_.image_stride + c_.block_rows * c_.width * c_.lanes;
    const size_t images = (pooled() ? c_.routed_examples : 1) * c_.image_stride;
    return std::max(forward,
                    images + (pooled() ? ConvRouted::Scratch(c_) : ConvDense::Scratch(c_)));
  }

  void Forward(const ForwardPass& pass) const override {
    const bool keep = pass.kept != nullptr;
    float* const block = pass.scratch + c_.image_stride;
    for (size_t e = 0; e < pass.n; ++e) {
      const float* const example = pass.in + e * in().stride();
      float* const image = keep ? pass.kept + e * c_.image_stride : pass.scratch;
      if (!c_.direct) c_.ToImage(example, image);
      uint8_t* const route =
          keep && pooled()
              ? reinterpret_cast<uint8_t*>(pass.kept + RoutesAt(pass.n)) + e * RoutesOf()
              : nullptr;
      ConvForward(c_, c_.direct ? example : image, pass.weights, pass.out + e * out().stride(),
                  route, block);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const float* const images = c_.direct ? pass.in : pass.kept;
    const bool data = pass.d_in != nullptr;
    const size_t at_once = pooled() ? c_.routed_examples : 1;
    float* const d_images = pass.scratch;
    float* const scratch = pass.scratch + at_once * c_.image_stride;
    const auto for_each = [&](const auto& work) {
      for (size_t e = 0; e < pass.n; e += at_once) {
        const size_t count = std::min(at_once, pass.n - e);
        float* const d_in = data ? pass.d_in + e * in().stride() : nullptr;
        float* const to = data && c_.direct ? d_in : d_images;
        if (data && !pooled()) std::fill_n(to, count * c_.image_stride, 0.0f);
        work(e, count, images + e * c_.image_stride, data ? to : nullptr);
        if (!data || c_.direct) continue;
        for (size_t i = 0; i < count; ++i) {
          c_.FromImage(d_images + i * c_.image_stride, d_in + i * in().stride());
        }
      }
    };
    if (pooled()) {
      const auto* const routes = reinterpret_cast<const uint8_t*>(pass.kept + RoutesAt(pass.n));
      ConvRouted routed(c_, pass.weights, pass.gradient, data, scratch);
      for_each([&](size_t e, size_t count, const float* image, float* d_image) {
        routed.Examples(count, image, routes + e * RoutesOf(), pass.d_out + e * out().stride(),
                        d_image);
      });
      routed.Finish();
      return;
    }
    ConvDense dense(c_, pass.weights, pass.gradient, data, scratch);
    for_each([&](size_t e, size_t, const float* image, float* d_image) {
      dense.Example(image, pass.out + e * out().stride(), pass.d_out + e * out().stride(), d_image);
    });
  }

 private:
  explicit ConvBlock(ConvLayout layout)
      : Block(layout.plan.in, layout.out), c_(std::move(layout)) {}

  bool pooled() const { return c_.plan.pool > 1; }
  size_t RoutesOf() const { return c_.pooled_pixels() * c_.lanes; }  // bytes per example
  size_t RoutesAt(size_t n) const { return c_.direct ? 0 : n * c_.image_stride; }

  const ConvLayout c_;
};

std::unique_ptr<Block> NewConv(const ConvPlan& plan) { return std::make_unique<ConvBlock>(plan); }

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training::fused {

std::unique_ptr<Block> MakeConv(Isa isa, const ConvPlan& plan) {
  MACAW_FOR_ISA(isa, NewConv, plan);
}

}  // namespace macaw::training::fused
#endif
