// The forward pass of one example. It works on blocks of the convolution's rows and finishes each
// block (ReLU, pool) while it is in the first-level cache.
#if defined(MACAW_CONV_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_CONV_FORWARD_INL_H_
#undef MACAW_CONV_FORWARD_INL_H_
#else
#define MACAW_CONV_FORWARD_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "training/fused/conv_layout.h"
#include "training/fused/conv_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// What the pool keeps of each output element for the backward pass: the position of the maximum in
// its window, 16·y + x, or kStopped if the ReLU made it zero.
constexpr uint8_t kStopped = 255;
constexpr uint8_t RouteOf(size_t y, size_t x) { return static_cast<uint8_t>(y * 16 + x); }

using Routes = hn::Rebind<uint8_t, Floats>;
using Integers = hn::RebindToSigned<Floats>;

struct Maximum {
  FloatVector value;
  hn::Vec<Integers> route;
};

// The maximum over a window of pool² vectors. `across` is the distance in floats to the next pixel,
// `down` to the next row. The first of equal maxima wins, and a NaN wins over everything, as in
// PyTorch.
HWY_INLINE Maximum MaximumOf(const float* window, size_t pool, size_t across, size_t down) {
  const Floats d;
  const Integers di;
  Maximum most = {hn::Load(d, window), hn::Zero(di)};
  for (size_t y = 0; y < pool; ++y) {
    for (size_t x = y == 0 ? 1 : 0; x < pool; ++x) {
      const FloatVector value = hn::Load(d, window + y * down + x * across);
      const auto better = hn::Or(hn::Gt(value, most.value), hn::IsNaN(value));
      most.value = hn::IfThenElse(better, value, most.value);
      most.route =
          hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, RouteOf(y, x)), most.route);
    }
  }
  return most;
}

// The same for a pool of 2, the usual one. Windows with a NaN are left to the general form.
HWY_INLINE Maximum MaximumOf2(const float* window, size_t across, size_t down) {
  const Floats d;
  const Integers di;
  const FloatVector a = hn::Load(d, window), b = hn::Load(d, window + across);
  const FloatVector e = hn::Load(d, window + down), f = hn::Load(d, window + down + across);
  const auto right = hn::Lt(a, b), low_right = hn::Lt(e, f);
  const FloatVector high = hn::IfThenElse(right, b, a), low = hn::IfThenElse(low_right, f, e);
  const auto lower = hn::Lt(high, low);
  const auto route = [&](auto mask, size_t y) HWY_ATTR {
    return hn::IfThenElse(hn::RebindMask(di, mask), hn::Set(di, RouteOf(y, 1)),
                          hn::Set(di, RouteOf(y, 0)));
  };
  // The sum is also NaN for infinities of both signs; the general form then gives the same result.
  const FloatVector sum = hn::Add(hn::Add(a, b), hn::Add(e, f));
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(sum)))) return MaximumOf(window, 2, across, down);
  return {hn::IfThenElse(lower, low, high),
          hn::IfThenElse(hn::RebindMask(di, lower), route(low_right, 1), route(right, 0))};
}

// The maxima of one row of windows. `rows` are `pool` rows of the convolution with lanes floats per
// pixel. `out` and `route` (null: not kept) belong to the row; `room` floats remain from `out` to
// the end of the example.
HWY_INLINE void PoolRow(const ConvLayout& c, const float* rows, float* out, size_t room,
                        uint8_t* route) {
  const Floats d;
  const Integers di;
  const size_t pool = c.plan.pool, channels = c.out_channels, across = c.lanes;
  const size_t width = c.pooled_width, down = c.width * across;
  const bool relu = c.plan.relu;
  for (size_t x = 0; x < width; ++x) {
    for (size_t p = 0; p < channels; p += kWidth) {
      const float* const window = rows + x * pool * across + p;
      Maximum most =
          pool == 2 ? MaximumOf2(window, across, down) : MaximumOf(window, pool, across, down);
      if (relu) {
        const auto stopped = hn::Le(most.value, hn::Zero(d));
        most.value = hn::IfThenZeroElse(stopped, most.value);
        most.route = hn::IfThenElse(hn::RebindMask(di, stopped), hn::Set(di, kStopped), most.route);
      }
      // Full vectors extend into the next pixels, which are written later.
      const size_t at = x * channels + p;
      if (at + kWidth <= room) {
        hn::StoreU(most.value, d, out + at);
      } else {
        StoreEnd(most.value, out + at, channels - p);
      }
      if (route != nullptr) {
        hn::StoreU(hn::DemoteTo(Routes(), most.route), Routes(), route + x * across + p);
      }
    }
  }
}

// `scratch` holds a block (block_rows·width·lanes floats). `route` belongs to the example:
// pooled_pixels()·lanes bytes, or null.
HWY_INLINE void ConvForward(const ConvLayout& c, const float* image, const float* weights,
                            float* out, uint8_t* route, float* scratch) {
  const size_t channels = c.out_channels, pool = c.plan.pool;
  const bool in_place = pool == 1 && channels == c.lanes;
  const Panels b = {weights, c.taps};
  Ends ends = {c.plan.bias ? weights + c.weight_floats() : nullptr};
  if (c.plan.relu && pool == 1) ends.least = 0;
  for (size_t y = 0; y < c.height; y += c.block_rows) {
    const size_t rows = std::min(c.block_rows, c.height - y);
    const Gather a = {image + y * c.step_y, c.pixel_at.data(), c.tap_at.data()};
    float* const block = in_place ? out + y * c.width * channels : scratch;
    GatherProduct<Then::kStore>(rows * c.width, channels, c.taps, a, b, ends,
                                {block, c.slot_at.data()});
    if (in_place) continue;
    if (pool == 1) {
      for (size_t pixel = 0; pixel < rows * c.width; ++pixel) {
        std::copy_n(block + pixel * c.lanes, channels, out + (y * c.width + pixel) * channels);
      }
      continue;
    }
    for (size_t i = 0; i < rows; i += pool) {
      const size_t first = (y + i) / pool * c.pooled_width;
      PoolRow(c, block + i * c.width * c.lanes, out + first * channels,
              c.out.size() - first * channels,
              route == nullptr ? nullptr : route + first * c.lanes);
    }
  }
  std::fill(out + c.out.size(), out + c.out.stride(), 0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
