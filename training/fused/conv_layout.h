#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/fused/conv.h"

namespace macaw::training::fused {

// The dimensions of a convolution, the same for every instruction set.
//
// Its image is interleaved and has a border of zeros, so that no tap needs a bounds check: row y,
// column x, channel c of the padded image is at y·row + x·in_channels + c. A "tap" is an element
// (ky, kx, c) of a window; it lies at ky·row + kx·in_channels + c from the window's first element.
// The taps of one ky are a contiguous `run`. The weights are a panel matrix (gemm-inl.h) of taps ×
// lanes.
struct ConvLayout {
  explicit ConvLayout(const ConvPlan& plan);

  ConvPlan plan;
  size_t in_channels, out_channels;
  size_t lanes;           // out_channels, rounded up to 16
  size_t run, taps;       // kernel·in_channels, kernel·run
  size_t image_height;    // with the border
  size_t row;             // floats of a row of the image
  size_t image_stride;    // floats from one example's image to the next one's
  bool direct;            // the block's input already has this form
  size_t step_x, step_y;  // image floats to the next window, across and down
  size_t pooled_height, pooled_width;
  size_t height, width;  // of the convolution's output, as far as the pool uses it
  Shape out;

  // The number of output rows in a block, which is processed at once and fits the first-level
  // cache. A multiple of the pool.
  size_t block_rows;
  // The unit of the backward pass behind a pool: several whole examples, or rows of pooled pixels
  // of one example.
  size_t routed_examples, routed_rows;

  std::vector<int32_t> tap_at;  // [taps] offsets from a window's first element
  // [block_pixels] offset of a window's first element from the block's.
  std::vector<int32_t> pixel_at;
  std::vector<int32_t> slot_at;   // [block_pixels] n·lanes
  std::vector<int32_t> place_at;  // [taps or block_pixels] n·16: a row of a panel
  std::vector<int32_t> lane_at;   // [lanes] in a row of a panel matrix of block_pixels

  size_t block_pixels() const { return block_rows * width; }
  size_t weight_floats() const { return lanes * taps; }
  size_t bias_floats() const { return plan.bias ? lanes : 0; }
  size_t pooled_pixels() const { return pooled_height * pooled_width; }
  size_t WeightAt(size_t lane, size_t tap) const {
    return (lane / kLanes * taps + tap) * kLanes + lane % kLanes;
  }

  // Between PyTorch's [out][in][ky][kx] and [out], and the packed weights.
  void Pack(std::span<const float* const> tensors, float* packed) const;
  void Unpack(const float* packed, std::span<float* const> tensors) const;

  // Between one example as the block receives it and its image. FromImage writes all in().stride()
  // floats.
  void ToImage(const float* example, float* image) const;
  void FromImage(const float* image, float* example) const;
};

}  // namespace macaw::training::fused
