// The backward pass of a convolution that no pool follows: every output pixel has a gradient.
#if defined(MACAW_CONV_DENSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_CONV_DENSE_INL_H_
#undef MACAW_CONV_DENSE_INL_H_
#else
#define MACAW_CONV_DENSE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "training/fused/conv_layout.h"
#include "training/fused/conv_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

class ConvDense {
 public:
  static size_t Scratch(const ConvLayout& c) {
    return BlockFloats(c) + c.plan.kernel * c.out_channels * RoundUp(c.run);
  }

  // The constructor zeroes `gradient` (null: not needed), and each example adds to it.
  ConvDense(const ConvLayout& c, const float* weights, float* gradient, bool data, float* scratch)
      : c_(c), gradient_(gradient), block_(scratch), turned_(scratch + BlockFloats(c)) {
    if (gradient != nullptr) std::fill_n(gradient, c.weight_floats() + c.bias_floats(), 0.0f);
    if (data) Turn(weights);
  }

  // `out` and `d_out` belong to the example. `d_image` (null: not needed) must be zero.
  void Example(const float* image, const float* out, const float* d_out, float* d_image) {
    for (size_t y = 0; y < c_.height; y += c_.block_rows) {
      const size_t rows = std::min(c_.block_rows, c_.height - y);
      const size_t pixels = rows * c_.width, first = y * c_.width * c_.out_channels;
      Mask(pixels, out + first, d_out + first);
      if (gradient_ != nullptr) WeightGradient(pixels, image + y * c_.step_y);
      if (d_image != nullptr) ImageGradient(pixels, d_image + y * c_.step_y);
    }
  }

 private:
  static size_t BlockFloats(const ConvLayout& c) { return c.block_pixels() * c.lanes; }

  // For each ky, a panel matrix of output channels × the taps of a row.
  void Turn(const float* weights) {
    const size_t panels = RoundUp(c_.run), channels = c_.out_channels;
    for (size_t ky = 0; ky < c_.plan.kernel; ++ky) {
      for (size_t i = 0; i < panels; ++i) {
        float* const to = turned_ + (ky * panels + i / kLanes * kLanes) * channels + i % kLanes;
        for (size_t lane = 0; lane < channels; ++lane) {
          to[lane * kLanes] = i < c_.run ? weights[c_.WeightAt(lane, ky * c_.run + i)] : 0.0f;
        }
      }
    }
  }

  // The block's gradients, zero where the ReLU was inactive, as a panel matrix of block_pixels() ×
  // lanes.
  void Mask(size_t pixels, const float* out, const float* d_out) {
    const Floats d;
    const size_t channels = c_.out_channels;
    const bool relu = c_.plan.relu;
    for (size_t p = 0; p < c_.lanes; p += kWidth) {
      float* const to = block_ + PanelAt(p, c_.block_pixels() * kLanes);
      const size_t count = p < channels ? std::min(kWidth, channels - p) : 0;
      FloatVector sum = hn::Zero(d);
      for (size_t i = 0; i < pixels; ++i) {
        FloatVector values = hn::Zero(d);
        const size_t at = i * channels + p;
        if (count == kWidth) {
          values = hn::LoadU(d, d_out + at);
          if (relu) {
            values = hn::IfThenZeroElse(hn::Le(hn::LoadU(d, out + at), hn::Zero(d)), values);
          }
        } else if (count > 0) {
          values = LoadEnd(d_out + at, count);
          if (relu) {
            values = hn::IfThenZeroElse(hn::Le(LoadEnd(out + at, count), hn::Zero(d)), values);
          }
        }
        hn::Store(values, d, to + i * kLanes);
        sum = hn::Add(sum, values);
      }
      if (gradient_ == nullptr || !c_.plan.bias) continue;
      float* const bias = gradient_ + c_.weight_floats() + p;
      hn::Store(hn::Add(hn::Load(d, bias), sum), d, bias);
    }
  }

  void WeightGradient(size_t pixels, const float* image) {
    GatherProduct<Then::kAdd>(
        c_.taps, c_.out_channels, pixels, {image, c_.tap_at.data(), c_.pixel_at.data()},
        {block_, c_.block_pixels()}, {}, {gradient_, c_.place_at.data(), kLanes * c_.taps});
  }

  // Windows overlap, so each pixel's contribution is added in memory before the next one is
  // computed. The lanes behind a run add zeros.
  void ImageGradient(size_t pixels, float* d_image) {
    const size_t panels = RoundUp(c_.run), channels = c_.out_channels;
    for (size_t ky = 0; ky < c_.plan.kernel; ++ky) {
      GatherProduct<Then::kAdd>(pixels, c_.run, channels,
                                {block_, c_.place_at.data(), c_.lane_at.data()},
                                {turned_ + ky * panels * channels, channels}, {},
                                {d_image + ky * c_.row, c_.pixel_at.data()});
    }
  }

  const ConvLayout& c_;
  float* const gradient_;
  float* const block_;
  float* const turned_;
};

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
