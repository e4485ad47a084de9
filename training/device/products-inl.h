#pragma once

#include "training/device/pass-inl.h"

// Linear and convolution layers: each of their passes is one product.
namespace macaw::training::ondevice {

// A matrix whose rows (outer) hold `stride` floats, of which an operand's k-th is the k-th.
struct ByRow {
  using Outer = const float*;
  using Inner = uint32_t;
  static constexpr bool kAlongFast = true;
  const float* data;
  uint32_t stride;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return data + size_t{outer} * stride; }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const { return k; }
  MACAW_INLINE_KERNEL float Get(Outer row, Inner k) const { return row[k]; }
};

// The same matrix, the other way round: the k-th row's outer-th float.
struct ByColumn {
  using Outer = uint32_t;
  using Inner = const float*;
  static constexpr bool kAlongFast = false;
  const float* data;
  uint32_t stride;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return outer; }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const { return data + size_t{k} * stride; }
  MACAW_INLINE_KERNEL float Get(Outer outer, Inner row) const { return row[outer]; }
};

// The same with a column of ones behind the last one, whose product is the bias's gradient.
struct ByColumnAndOne : ByColumn {
  MACAW_INLINE_KERNEL float Get(Outer outer, Inner row) const {
    return outer < stride ? row[outer] : 1.0f;
  }
};

MACAW_INLINE_KERNEL void LinearForward(const device::Team& team, const Pass& pass, const Op& op) {
  const uint32_t inputs = op.in_vector.value, outputs = op.out_vector.value;
  const float* const bias = pass.Weights(op.bias);
  float* const out = pass.Activation(op.out);
  const bool relu = op.out.relu != 0;
  TeamGemm(team, op.forward, pass.rows * op.positions, outputs, inputs,
           ByRow{pass.Activation(op.in), inputs}, ByRow{pass.Weights(op.weight), inputs},
           [=](uint32_t m, uint32_t n, float sum) {
             if (bias != nullptr) sum += bias[n];
             out[m * outputs + n] = relu ? Positive(sum) : sum;
           });
}

MACAW_INLINE_KERNEL void LinearBackward(const device::Team& team, const Pass& pass, const Op& op,
                                        bool to_input) {
  const uint32_t inputs = op.in_vector.value, outputs = op.out_vector.value;
  const uint32_t vectors = pass.rows * op.positions;
  const float* const d_out = pass.Gradient(op.out);
  if (to_input) {
    const InputSink sink(pass, op.in, op.adds);
    TeamGemm(team, op.backward, vectors, inputs, outputs, ByRow{d_out, outputs},
             ByColumn{pass.Weights(op.weight), inputs},
             [=](uint32_t m, uint32_t n, float sum) { sink.Put(m * inputs + n, sum); });
  }
  const Sink weight(pass, op.weight), bias(pass, op.bias);
  if (!weight.trains && !bias.trains) return;
  TeamGemm(team, op.gradient, outputs, inputs + (bias.trains ? 1 : 0), vectors,
           ByColumn{d_out, outputs}, ByColumnAndOne{{pass.Activation(op.in), inputs}},
           [=](uint32_t m, uint32_t n, float sum) {
             n < inputs ? weight.Put(m * inputs + n, sum) : bias.Put(m, sum);
           });
}

// A window's corner, or a pixel whose gradient is asked for.
struct Place {
  int32_t at;  // of it, or of its example, in a batch
  int32_t y, x;
};

// The windows of a convolution's input. Outer: a pixel of the output (row by row); along: a tap.
struct Windows {
  using Outer = Place;
  using Inner = Tap;
  static constexpr bool kAlongFast = false;
  const float* in;
  const Tap* taps;
  Divisor out_plane, out_width;
  uint32_t stride, size, height, width;  // the last three of an example of the input

  MACAW_INLINE_KERNEL Windows(const Pass& pass, const Op& op)
      : in(pass.Activation(op.in)),
        taps(pass.program.taps + op.forward_taps),
        out_plane(op.out_plane),
        out_width(op.out_width),
        stride(op.stride),
        size(op.in.size),
        height(op.in.height),
        width(op.in.width) {}
  MACAW_INLINE_KERNEL Place At(uint32_t outer) const {
    const uint32_t row = out_plane.Quotient(outer), pixel = outer - row * out_plane.value;
    const uint32_t y = out_width.Quotient(pixel), x = pixel - y * out_width.value;
    const int32_t top = static_cast<int32_t>(y * stride);
    const int32_t left = static_cast<int32_t>(x * stride);
    return {static_cast<int32_t>(row * size) + top * static_cast<int32_t>(width) + left, top, left};
  }
  MACAW_INLINE_KERNEL Tap Along(uint32_t k) const { return taps[k]; }
  MACAW_INLINE_KERNEL float Get(const Place& place, const Tap& tap) const {
    const bool inside = (static_cast<uint32_t>(place.y + tap.y) < height) &
                        (static_cast<uint32_t>(place.x + tap.x) < width);
    return inside ? in[place.at + tap.offset] : 0.0f;
  }
};

// The same, the other way round, with a column of ones behind the last tap. Outer: a tap; along: a
// pixel of the output.
struct WindowsAndOne {
  using Outer = Tap;
  using Inner = Place;
  static constexpr bool kAlongFast = true;
  Windows windows;
  uint32_t taps;

  MACAW_INLINE_KERNEL Tap At(uint32_t outer) const {
    Tap tap = windows.taps[Least(outer, taps - 1)];
    if (outer >= taps) tap.weight = -1;
    return tap;
  }
  MACAW_INLINE_KERNEL Place Along(uint32_t k) const { return windows.At(k); }
  MACAW_INLINE_KERNEL float Get(const Tap& tap, const Place& place) const {
    const float value = windows.Get(place, tap);
    return tap.weight < 0 ? 1.0f : value;
  }
};

// The gradient of a convolution's output by channel. Outer: a channel; along: a pixel.
struct OutputGradient {
  using Outer = uint32_t;
  using Inner = uint32_t;
  static constexpr bool kAlongFast = true;
  const float* d_out;
  Divisor plane;
  uint32_t size;
  MACAW_INLINE_KERNEL OutputGradient(const Pass& pass, const Op& op)
      : d_out(pass.Gradient(op.out)), plane(op.out_plane), size(op.out.size) {}
  MACAW_INLINE_KERNEL uint32_t At(uint32_t outer) const { return outer * plane.value; }
  MACAW_INLINE_KERNEL uint32_t Along(uint32_t k) const {
    const uint32_t row = plane.Quotient(k);
    return row * size + (k - row * plane.value);
  }
  MACAW_INLINE_KERNEL float Get(uint32_t channel, uint32_t pixel) const {
    return d_out[channel + pixel];
  }
};

// The outputs that an input pixel went to. Outer: a pixel of the input; along: a tap of an output
// channel.
struct Outputs {
  using Outer = Place;
  using Inner = Tap;
  static constexpr bool kAlongFast = false;
  const float* d_out;
  const Tap* taps;
  Divisor in_plane, in_width, stride;
  uint32_t size, height, width;  // of an example of the output

  MACAW_INLINE_KERNEL Outputs(const Pass& pass, const Op& op)
      : d_out(pass.Gradient(op.out)),
        taps(pass.program.taps + op.backward_taps),
        in_plane(op.in_plane),
        in_width(op.in_width),
        stride(op.stride_by),
        size(op.out.size),
        height(op.out.height),
        width(op.out.width) {}
  MACAW_INLINE_KERNEL Place At(uint32_t outer) const {
    const uint32_t row = in_plane.Quotient(outer), pixel = outer - row * in_plane.value;
    const uint32_t y = in_width.Quotient(pixel);
    return {static_cast<int32_t>(row * size), static_cast<int32_t>(y),
            static_cast<int32_t>(pixel - y * in_width.value)};
  }
  MACAW_INLINE_KERNEL Tap Along(uint32_t k) const { return taps[k]; }
  MACAW_INLINE_KERNEL float Get(const Place& place, const Tap& tap) const {
    // Below 0 is beyond the last one.
    const auto down = static_cast<uint32_t>(place.y + tap.y);
    const auto right = static_cast<uint32_t>(place.x + tap.x);
    uint32_t y = down, x = right;
    bool inside = true;
    if (stride.value > 1) {
      y = stride.Quotient(down & 0x7FFFFFFF);
      x = stride.Quotient(right & 0x7FFFFFFF);
      inside = (y * stride.value == down) & (x * stride.value == right);
    }
    inside = inside & (y < height) & (x < width);
    return inside ? d_out[place.at + tap.offset + static_cast<int32_t>(y * width + x)] : 0.0f;
  }
};

// The gradient of a convolution's output by pixel. Outer: a pixel of the output; along: a channel.
struct OutputPixels {
  using Outer = uint32_t;
  using Inner = uint32_t;
  static constexpr bool kAlongFast = false;
  const float* d_out;
  Divisor plane;
  uint32_t size;
  MACAW_INLINE_KERNEL OutputPixels(const Pass& pass, const Op& op)
      : d_out(pass.Gradient(op.out)), plane(op.out_plane), size(op.out.size) {}
  MACAW_INLINE_KERNEL uint32_t At(uint32_t outer) const {
    const uint32_t row = plane.Quotient(outer);
    return row * size + (outer - row * plane.value);
  }
  MACAW_INLINE_KERNEL uint32_t Along(uint32_t k) const { return k * plane.value; }
  MACAW_INLINE_KERNEL float Get(uint32_t pixel, uint32_t channel) const {
    return d_out[pixel + channel];
  }
};

// A convolution's weights, by input channel. Along: a tap of an output channel.
struct WeightsOfInput {
  using Outer = const float*;
  using Inner = int32_t;
  static constexpr bool kAlongFast = true;
  const float* weights;
  const Tap* taps;
  uint32_t window;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return weights + outer * window; }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const { return taps[k].weight; }
  MACAW_INLINE_KERNEL float Get(Outer of_channel, Inner weight) const { return of_channel[weight]; }
};

MACAW_INLINE_KERNEL void ConvForward(const device::Team& team, const Pass& pass, const Op& op) {
  const uint32_t taps = op.in.channels * op.kernel_height * op.kernel_width;
  const float* const bias = pass.Weights(op.bias);
  float* const out = pass.Activation(op.out);
  const Divisor plane = op.out_plane;
  const uint32_t size = op.out.size;
  const bool relu = op.out.relu != 0;
  TeamGemm(team, op.forward, op.out.channels, pass.rows * op.out_plane.value, taps,
           ByRow{pass.Weights(op.weight), taps}, Windows(pass, op),
           [=](uint32_t m, uint32_t n, float sum) {
             if (bias != nullptr) sum += bias[m];
             const uint32_t row = plane.Quotient(n);
             out[row * size + m * plane.value + (n - row * plane.value)] =
                 relu ? Positive(sum) : sum;
           });
}

// The input's gradient in two steps: what each output pixel gives to each tap of its window, then
// the sum of what each input pixel is given. With few input channels the product of one step reads
// every gradient for very few of them.
MACAW_INLINE_KERNEL void InputGradientByColumns(const device::Team& team, const Pass& pass,
                                                const Op& op, uint32_t taps) {
  const uint32_t plane_out = op.out_plane.value, pixels = pass.rows * plane_out;
  float* const columns = pass.activations + size_t{op.columns} * pass.capacity;
  TeamGemm(team, op.backward, taps, pixels, op.out.channels,
           ByColumn{pass.Weights(op.weight), taps}, OutputPixels(pass, op),
           [=](uint32_t m, uint32_t n, float sum) { columns[size_t{m} * pixels + n] = sum; });
  const InputSink sink(pass, op.in, op.adds);
  const uint32_t count = pass.rows * op.in.size, window = op.kernel_height * op.kernel_width;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t row = op.in_size.Quotient(i), element = i - row * op.in.size;
    const uint32_t channel = op.in_plane.Quotient(element);
    const uint32_t pixel = element - channel * op.in_plane.value;
    const uint32_t line = op.in_width.Quotient(pixel);
    const auto y = static_cast<int32_t>(line);
    const auto x = static_cast<int32_t>(pixel - line * op.in_width.value);
    float d = 0;
    for (uint32_t t = channel * window; t < (channel + 1) * window; ++t) {
      const Tap tap = pass.program.taps[op.forward_taps + t];
      const int32_t top = y - tap.y, left = x - tap.x;  // of the window
      if (top < 0 || left < 0) continue;
      const uint32_t out_y = op.stride_by.Quotient(static_cast<uint32_t>(top));
      const uint32_t out_x = op.stride_by.Quotient(static_cast<uint32_t>(left));
      if (out_y * op.stride != static_cast<uint32_t>(top) ||
          out_x * op.stride != static_cast<uint32_t>(left) || out_y >= op.out.height ||
          out_x >= op.out.width) {
        continue;
      }
      d += columns[size_t{t} * pixels + row * plane_out + out_y * op.out.width + out_x];
    }
    sink.Put(i, d);
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void ConvBackward(const device::Team& team, const Pass& pass, const Op& op,
                                      bool to_input) {
  const uint32_t window = op.kernel_height * op.kernel_width, taps = op.in.channels * window;
  if (to_input && op.columns != kNothing) {
    InputGradientByColumns(team, pass, op, taps);
  } else if (to_input) {
    const InputSink sink(pass, op.in, op.adds);
    const Tap* const backward = pass.program.taps + op.backward_taps;
    const Divisor plane = op.in_plane;
    const uint32_t size = op.in.size;
    TeamGemm(team, op.backward, op.in.channels, pass.rows * op.in_plane.value,
             op.out.channels * window, WeightsOfInput{pass.Weights(op.weight), backward, window},
             Outputs(pass, op), [=](uint32_t m, uint32_t n, float sum) {
               const uint32_t row = plane.Quotient(n);
               sink.Put(row * size + m * plane.value + (n - row * plane.value), sum);
             });
  }
  const Sink weight(pass, op.weight), bias(pass, op.bias);
  if (!weight.trains && !bias.trains) return;
  TeamGemm(team, op.gradient, op.out.channels, taps + (bias.trains ? 1 : 0),
           pass.rows * op.out_plane.value, OutputGradient(pass, op),
           WindowsAndOne{Windows(pass, op), taps}, [=](uint32_t m, uint32_t n, float sum) {
             n < taps ? weight.Put(m * taps + n, sum) : bias.Put(m, sum);
           });
}

}  // namespace macaw::training::ondevice
