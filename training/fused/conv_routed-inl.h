// The backward pass of a convolution that a max pool follows: in each window one pixel per channel
// has a gradient. A gradient g of channel o at pixel x adds g·image[x …] to the rows of dW[o], and
// g·W[o] to d_image[x …]. Both loops run along the taps of a window, which are contiguous, and skip
// pixels without a gradient.
#if defined(MACAW_CONV_ROUTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_CONV_ROUTED_INL_H_
#undef MACAW_CONV_ROUTED_INL_H_
#else
#define MACAW_CONV_ROUTED_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "training/fused/conv_forward-inl.h"
#include "training/fused/conv_layout.h"
#include "training/fused/conv_routed_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// The size of the part of the weights that is read again for each pixel (24 KiB, most of a
// first-level cache).
constexpr size_t kRoutedWeights = 6144;

class ConvRouted {
 public:
  static size_t Scratch(const ConvLayout& c) {
    const size_t block = BlockPixels(c) * c.lanes, codes = c.plan.pool * c.plan.pool;
    return 3 * block + kLanes + RoundUp(BlockPixels(c)) + RoundUp(BlockPixels(c) * codes + 1) +
           2 * c.out_channels * c.plan.kernel * RoundUp(c.run);
  }

  // `gradient` (null: not needed) is written by Finish.
  ConvRouted(const ConvLayout& c, const float* weights, float* gradient, bool data, float* scratch)
      : c_(c), gradient_(gradient), data_(data), run_(RoundUp(c.run)) {
    const size_t block = BlockPixels(c) * c.lanes;
    const auto take = [&](size_t floats) {
      float* const taken = scratch;
      scratch += floats;
      return taken;
    };
    value_ = take(block);
    at_ = reinterpret_cast<int32_t*>(take(block));
    listed_ = reinterpret_cast<int32_t*>(take(block + kLanes));
    pixel_at_ = reinterpret_cast<int32_t*>(take(RoundUp(BlockPixels(c))));
    list_end_ =
        reinterpret_cast<int32_t*>(take(RoundUp(BlockPixels(c) * c.plan.pool * c.plan.pool + 1)));
    sums_ = take(c.out_channels * c.plan.kernel * run_);
    turned_ = take(c.out_channels * c.plan.kernel * run_);
    if (gradient != nullptr) {
      std::fill_n(sums_, c.out_channels * c.plan.kernel * run_, 0.0f);
      if (c.plan.bias) std::fill_n(gradient + c.weight_floats(), c.lanes, 0.0f);
    }
    if (data) Turn(weights);
  }

  // Processes `examples` examples (at most routed_examples); the pointers are those of the first
  // one. Writes `d_images` (image_stride apart) if the constructor was told to compute it.
  void Examples(size_t examples, const float* images, const uint8_t* routes, const float* d_out,
                float* d_images) {
    size_t zeroed = 0;  // how many floats of each image are zeroed so far
    for (size_t y = 0; y < c_.pooled_height; y += c_.routed_rows) {
      const size_t rows = std::min(c_.routed_rows, c_.pooled_height - y);
      const size_t pixels = Decode(examples, y, rows, routes, d_out);
      if (gradient_ != nullptr) WeightGradient(pixels, images);
      if (data_) {
        // The part of the image that this block adds to; after the last block, also the rest.
        const bool last = y + rows == c_.pooled_height;
        const size_t used =
            ((y + rows) * c_.plan.pool - 1) * c_.step_y + c_.plan.kernel * c_.row + kLanes;
        const size_t end = last ? c_.image_stride : std::min(used, c_.image_stride);
        for (size_t e = 0; e < examples; ++e) {
          std::fill(d_images + e * c_.image_stride + zeroed, d_images + e * c_.image_stride + end,
                    0.0f);
        }
        zeroed = end;
        List(examples, y, rows, routes);
        ImageGradient(pixels, d_images);
      }
    }
  }

  // Writes the weights' gradient in the order of the weights.
  void Finish() {
    if (gradient_ == nullptr) return;
    std::fill_n(gradient_, c_.weight_floats(), 0.0f);
    for (size_t lane = 0; lane < c_.out_channels; ++lane) {
      for (size_t ky = 0; ky < c_.plan.kernel; ++ky) {
        const float* const from = sums_ + (lane * c_.plan.kernel + ky) * run_;
        float* const to = gradient_ + c_.WeightAt(lane, ky * c_.run);
        for (size_t i = 0; i < c_.run; ++i) to[i * kLanes] = from[i];
      }
    }
  }

 private:
  // Pixels per block: rows of one example, or whole examples.
  static size_t BlockPixels(const ConvLayout& c) {
    return std::max(c.routed_rows * c.pooled_width, c.routed_examples * c.pooled_pixels());
  }

  size_t TurnedRows() const {
    const size_t wide = std::min(kRoutedWide * kWidth, run_);
    return std::max<size_t>(kRoutedWeights / (c_.out_channels * wide), 1);
  }

  // Rearranges the weights into tiles; within a tile, all vectors of one output channel, then the
  // next channel.
  void Turn(const float* weights) {
    float* to = turned_;
    ForEachTile(c_, TurnedRows(), [&](const Tile& tile) {
      for (size_t lane = 0; lane < c_.out_channels; ++lane) {
        for (size_t ky = tile.ky; ky < tile.ky + tile.rows; ++ky) {
          for (size_t i = tile.vector * kWidth; i < (tile.vector + tile.vectors) * kWidth; ++i) {
            *to++ = i < c_.run ? weights[c_.WeightAt(lane, ky * c_.run + i)] : 0.0f;
          }
        }
      }
    });
  }

  // Decodes a block: gradients and image offsets of its pooled pixels, and the bias's gradient.
  // Gradients that the ReLU stopped become zero.
  size_t Decode(size_t examples, size_t y, size_t rows, const uint8_t* routes, const float* d_out) {
    const Floats d;
    const Integers di;
    const size_t channels = c_.out_channels, pool = c_.plan.pool, width = c_.pooled_width;
    const size_t lanes = c_.lanes;
    const auto down = hn::Set(di, static_cast<int32_t>(c_.step_y));
    const auto across = hn::Set(di, static_cast<int32_t>(c_.step_x));
    size_t pixel = 0;
    for (size_t e = 0; e < examples; ++e) {
      for (size_t row = y; row < y + rows; ++row) {
        size_t base = e * c_.image_stride + row * pool * c_.step_y;
        for (size_t x = 0; x < width; ++x, ++pixel, base += pool * c_.step_x) {
          const size_t place = row * width + x;
          const float* const from = d_out + e * c_.out.stride() + place * channels;
          const uint8_t* const route = routes + (e * c_.pooled_pixels() + place) * lanes;
          pixel_at_[pixel] = static_cast<int32_t>(base);
          for (size_t p = 0; p < channels; p += kWidth) {
            const auto code = hn::PromoteTo(di, hn::LoadU(Routes(), route + p));
            const auto stopped = hn::Eq(code, hn::Set(di, kStopped));
            const auto kept = hn::IfThenZeroElse(stopped, code);
            const auto at = hn::Add(hn::Mul(hn::ShiftRight<4>(kept), down),
                                    hn::Mul(hn::And(kept, hn::Set(di, 15)), across));
            hn::Store(hn::Add(at, hn::Set(di, static_cast<int32_t>(base))), di,
                      at_ + pixel * lanes + p);
            const size_t count = std::min(kWidth, channels - p);
            const FloatVector values =
                place * channels + p + kWidth <= c_.out.stride()
                    ? hn::IfThenElseZero(hn::FirstN(d, count), hn::LoadU(d, from + p))
                    : LoadEnd(from + p, count);
            hn::Store(hn::IfThenZeroElse(hn::RebindMask(d, stopped), values), d,
                      value_ + pixel * lanes + p);
          }
        }
      }
    }
    if (gradient_ == nullptr || !c_.plan.bias) return pixel;
    for (size_t p = 0; p < channels; p += kWidth) {
      FloatVector sum = hn::Zero(d);
      for (size_t i = 0; i < pixel; ++i) sum = hn::Add(sum, hn::Load(d, value_ + i * c_.lanes + p));
      float* const bias = gradient_ + c_.weight_floats() + p;
      hn::Store(hn::Add(hn::Load(d, bias), sum), d, bias);
    }
    return pixel;
  }

  // Adds to dW: one tile per channel, over all pixels of the block.
  void WeightGradient(size_t pixels, const float* images) {
    ForEachTile(c_, c_.plan.kernel, [&](const Tile& tile) HWY_ATTR {
      const float* const image = images + tile.ky * c_.row + tile.vector * kWidth;
      WithTile(tile, [&](auto rows, auto vectors) HWY_ATTR {
        for (size_t lane = 0; lane < c_.out_channels; ++lane) {
          const float* const value = value_ + lane;
          const int32_t* const at = at_ + lane;
          AddUp<decltype(rows)::value, decltype(vectors)::value>(
              pixels, [&](size_t i) HWY_ATTR { return value[i * c_.lanes]; },
              [&](size_t i) HWY_ATTR { return image + at[i * c_.lanes]; }, c_.row,
              sums_ + (lane * c_.plan.kernel + tile.ky) * run_ + tile.vector * kWidth, run_);
        }
      });
    });
  }

  // Lists, for each pooled pixel and each position in its window, the channels whose maximum is
  // there. Zero gradients are left out.
  void List(size_t examples, size_t y, size_t rows, const uint8_t* routes) {
    const Floats d;
    const Integers di;
    const size_t pool = c_.plan.pool, block = rows * c_.pooled_width;
    size_t listed = 0;
    int32_t* end = list_end_;
    *end++ = 0;
    for (size_t e = 0, i = 0; e < examples; ++e) {
      const uint8_t* route = routes + (e * c_.pooled_pixels() + y * c_.pooled_width) * c_.lanes;
      for (size_t place = 0; place < block; ++place, ++i, route += c_.lanes) {
        for (size_t code = 0; code < pool * pool; ++code) {
          const auto wanted = hn::Set(di, RouteOf(code / pool, code % pool));
          for (size_t p = 0; p < c_.out_channels; p += kWidth) {
            const FloatVector value = hn::Load(d, value_ + i * c_.lanes + p);
            const auto here = hn::Eq(hn::PromoteTo(di, hn::LoadU(Routes(), route + p)), wanted);
            const auto mask = hn::And(hn::RebindMask(d, here), hn::Ne(value, hn::Zero(d)));
            // In two steps, because a compressing store is slow on some processors.
            const auto at = hn::Iota(di, static_cast<int32_t>(p));
            hn::StoreU(hn::Compress(at, hn::RebindMask(di, mask)), di, listed_ + listed);
            listed += hn::CountTrue(d, mask);
          }
          *end++ = static_cast<int32_t>(listed);
        }
      }
    }
  }

  void ImageGradient(size_t pixels, float* d_images) {
    const float* weights = turned_;
    ForEachTile(c_, TurnedRows(), [&](const Tile& tile) HWY_ATTR {
      float* const to = d_images + tile.ky * c_.row + tile.vector * kWidth;
      WithTile(tile, [&](auto rows, auto vectors) HWY_ATTR {
        Spread<decltype(rows)::value, decltype(vectors)::value>(pixels, weights, to);
      });
      weights += c_.out_channels * tile.rows * tile.vectors * kWidth;
    });
  }

  // Adds the tiles of the listed channels to the image gradient of each pixel of the block.
  template <size_t kRows, size_t kVectors>
  HWY_INLINE void Spread(size_t pixels, const float* weights, float* d_images) const {
    constexpr size_t kFloats = kRows * kVectors * kWidth;
    const size_t pool = c_.plan.pool;
    const int32_t* end = list_end_;
    for (size_t i = 0; i < pixels; ++i) {
      const float* const values = value_ + i * c_.lanes;
      for (size_t y = 0; y < pool; ++y) {
        for (size_t x = 0; x < pool; ++x, ++end) {
          if (end[0] == end[1]) continue;
          const int32_t* const lane = listed_ + end[0];
          AddUp<kRows, kVectors>(
              static_cast<size_t>(end[1] - end[0]),
              [&](size_t k) HWY_ATTR { return values[lane[k]]; },
              [&](size_t k) HWY_ATTR { return weights + static_cast<size_t>(lane[k]) * kFloats; },
              kVectors * kWidth, d_images + pixel_at_[i] + y * c_.step_y + x * c_.step_x, c_.row);
        }
      }
    }
  }

  const ConvLayout& c_;
  float* const gradient_;
  const bool data_;
  const size_t run_;   // floats of a run, rounded up
  float* value_;       // [pixels][lanes]
  int32_t* at_;        // [pixels][lanes] into the block's images
  int32_t* listed_;    // channels with a gradient, grouped by pixel and position in the window
  int32_t* pixel_at_;  // [pixels] offset of the window's first pixel
  int32_t* list_end_;  // [pixels·pool² + 1]
  float* sums_;        // [channels][kernel][run] of dW
  float* turned_;      // tiles of W
};

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
