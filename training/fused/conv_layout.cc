#include "training/fused/conv_layout.h"

#include <algorithm>
#include <cstring>

namespace macaw::training::fused {
namespace {

// Floats of the convolution's output per block (16 KiB).
constexpr size_t kBlockFloats = 4096;
// Pooled gradients per block; each also needs its position.
constexpr size_t kRoutedFloats = 2048;

// How far vectors that begin within a run may extend past its end.
size_t Overhang(size_t run) { return RoundUp(run) - run; }

}  // namespace

ConvLayout::ConvLayout(const ConvPlan& p) : plan(p) {
  const Shape& in = plan.in;
  in_channels = in.channels;
  out_channels = plan.outputs;
  lanes = RoundUp(out_channels);
  run = plan.kernel * in_channels;
  taps = plan.kernel * run;
  image_height = in.height + 2 * plan.padding;
  row = (in.width + 2 * plan.padding) * in_channels;
  const bool interleaved =
      in.order == Shape::Order::kInterleaved ? in.pitch == in.channels : in.channels == 1;
  direct = interleaved && plan.padding == 0 && image_height * row + Overhang(run) <= in.stride();
  image_stride = direct ? in.stride() : RoundUp(image_height * row + kLanes);
  step_x = plan.stride * in_channels;
  step_y = plan.stride * row;
  pooled_height = ((image_height - plan.kernel) / plan.stride + 1) / plan.pool;
  pooled_width = ((in.width + 2 * plan.padding - plan.kernel) / plan.stride + 1) / plan.pool;
  height = pooled_height * plan.pool;
  width = pooled_width * plan.pool;
  out = {.channels = out_channels,
         .height = pooled_height,
         .width = pooled_width,
         .order = Shape::Order::kInterleaved,
         .pitch = out_channels};

  const size_t fitting = kBlockFloats / (plan.pool * width * lanes);
  block_rows = std::clamp<size_t>(fitting, 1, pooled_height) * plan.pool;
  routed_rows = std::clamp<size_t>(kRoutedFloats / (pooled_width * lanes), 1, pooled_height);
  routed_examples = std::max<size_t>(kRoutedFloats / (pooled_pixels() * lanes), 1);

  const auto append = [](std::vector<int32_t>& table, size_t at) {
    table.push_back(static_cast<int32_t>(at));
  };
  for (size_t tap = 0; tap < taps; ++tap) append(tap_at, tap / run * row + tap % run);
  for (size_t i = 0; i < block_pixels(); ++i) {
    append(pixel_at, i / width * step_y + i % width * step_x);
    append(slot_at, i * lanes);
  }
  for (size_t i = 0; i < std::max(taps, block_pixels()); ++i) append(place_at, i * kLanes);
  for (size_t lane = 0; lane < lanes; ++lane) {
    append(lane_at, lane / kLanes * kLanes * block_pixels() + lane % kLanes);
  }
}

void ConvLayout::Pack(std::span<const float* const> tensors, float* packed) const {
  std::fill_n(packed, weight_floats() + bias_floats(), 0.0f);
  const float* from = tensors[0];
  for (size_t out = 0; out < out_channels; ++out) {
    for (size_t in = 0; in < in_channels; ++in) {
      for (size_t k = 0; k < plan.kernel * plan.kernel; ++k) {
        packed[WeightAt(out, k * in_channels + in)] = *from++;
      }
    }
  }
  if (plan.bias) std::copy_n(tensors[1], out_channels, packed + weight_floats());
}

void ConvLayout::Unpack(const float* packed, std::span<float* const> tensors) const {
  float* to = tensors[0];
  for (size_t out = 0; out < out_channels; ++out) {
    for (size_t in = 0; in < in_channels; ++in) {
      for (size_t k = 0; k < plan.kernel * plan.kernel; ++k) {
        *to++ = packed[WeightAt(out, k * in_channels + in)];
      }
    }
  }
  if (plan.bias) std::copy_n(packed + weight_floats(), out_channels, tensors[1]);
}

void ConvLayout::ToImage(const float* example, float* image) const {
  const Shape& in = plan.in;
  std::fill_n(image, image_stride, 0.0f);
  float* const inside = image + plan.padding * (row + in_channels);
  for (size_t y = 0; y < in.height; ++y) {
    float* const to = inside + y * row;
    if (in.order == Shape::Order::kInterleaved || in_channels == 1) {
      const size_t pitch = in.order == Shape::Order::kInterleaved ? in.pitch : 1;
      const float* const from = example + y * in.width * pitch;
      if (pitch == in_channels) {
        std::copy_n(from, in.width * pitch, to);
        continue;
      }
      for (size_t x = 0; x < in.width; ++x) {
        std::copy_n(from + x * pitch, in_channels, to + x * in_channels);
      }
      continue;
    }
    for (size_t c = 0; c < in_channels; ++c) {
      const float* const from = example + (c * in.height + y) * in.width;
      for (size_t x = 0; x < in.width; ++x) to[x * in_channels + c] = from[x];
    }
  }
}

void ConvLayout::FromImage(const float* image, float* example) const {
  const Shape& in = plan.in;
  const float* const inside = image + plan.padding * (row + in_channels);
  for (size_t y = 0; y < in.height; ++y) {
    const float* const from = inside + y * row;
    if (in.order == Shape::Order::kPlanar) {
      for (size_t c = 0; c < in_channels; ++c) {
        float* const to = example + (c * in.height + y) * in.width;
        for (size_t x = 0; x < in.width; ++x) to[x] = from[x * in_channels + c];
      }
      continue;
    }
    for (size_t x = 0; x < in.width; ++x) {
      float* const to = example + (y * in.width + x) * in.pitch;
      std::copy_n(from + x * in_channels, in_channels, to);
      std::fill(to + in_channels, to + in.pitch, 0.0f);
    }
  }
  std::fill(example + in.size(), example + in.stride(), 0.0f);
}

}  // namespace macaw::training::fused
