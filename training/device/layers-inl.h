#pragma once

#include "device/math.h"
#include "device/philox.h"
#include "training/device/pass-inl.h"

// Layers without products: each element by itself, windows, and norms. Each function leaves the
// team in step.
namespace macaw::training::ondevice {

MACAW_INLINE_KERNEL void ElementsForward(const device::Team& team, const Pass& pass, const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  const uint32_t count = pass.rows * op.out.size;
  const uint64_t batch = pass.step.rows;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    float x = in[i];
    switch (op.kind) {
      case OpKind::kTanh:
        x = device::Tanh(x);
        break;
      case OpKind::kSigmoid:
        x = device::Sigmoid(x);
        break;
      case OpKind::kAdd:
        x = x + pass.Activation(op.in2)[i];
        if (op.out.relu != 0) x = Positive(x);
        break;
      case OpKind::kDropout:
        if (pass.job.has_dropout != 0) {
          // Words are drawn layer by layer for the whole batch.
          const uint64_t word = op.dropout_base * batch + uint64_t{pass.first} * op.out.size + i;
          const bool keeps = device::PhiloxWord(pass.step.key, pass.step.high, word) >= op.dropped;
          x *= keeps ? op.factor : 0.0f;
        }
        break;
      default:  // kRelu
        x = Positive(x);
        break;
    }
    out[i] = x;
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void ElementsBackward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const out = pass.Activation(op.out);
  const float* const d_out = pass.Gradient(op.out);
  const InputSink sink(pass, op.in, op.adds), sink2(pass, op.in2, op.adds2);
  const uint32_t count = pass.rows * op.out.size;
  const uint64_t batch = pass.step.rows;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    float d = d_out[i];
    const float y = out[i];
    switch (op.kind) {
      case OpKind::kTanh:
        d *= 1.0f - y * y;
        break;
      case OpKind::kSigmoid:
        d *= y * (1.0f - y);
        break;
      case OpKind::kAdd:
        if (sink2.gradient != nullptr) sink2.Put(i, d);
        break;
      case OpKind::kDropout:
        if (pass.job.has_dropout != 0) {
          const uint64_t word = op.dropout_base * batch + uint64_t{pass.first} * op.out.size + i;
          const bool keeps = device::PhiloxWord(pass.step.key, pass.step.high, word) >= op.dropped;
          d *= keeps ? op.factor : 0.0f;
        }
        break;
      default:
        if (y <= 0) d = 0;
        break;
    }
    if (sink.gradient != nullptr) sink.Put(i, d);
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void PoolForward(const device::Team& team, const Pass& pass, const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  auto* const winners = reinterpret_cast<int32_t*>(pass.Kept(op));  // of kMaxPool
  const uint32_t count = pass.rows * op.out.size;
  const uint32_t plane_in = op.in_plane.value, plane_out = op.out_plane.value;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t channel = op.out_plane.Quotient(i), pixel = i - channel * plane_out;
    const uint32_t y = op.out_width.Quotient(pixel), x = pixel - y * op.out_width.value;
    const uint32_t corner = y * op.stride * op.in.width + x * op.stride;
    const float* const plane = in + size_t{channel} * plane_in;  // of a row of the batch
    uint32_t best = corner;
    float result = op.kind == OpKind::kMaxPool ? plane[corner] : 0.0f;
    for (uint32_t dy = 0; dy < op.kernel_height; ++dy) {
      for (uint32_t dx = 0; dx < op.kernel_width; ++dx) {
        const uint32_t at = corner + dy * op.in.width + dx;
        const float value = plane[at];
        if (op.kind == OpKind::kAvgPool) {
          result += value;
        } else if (value > result || value != value) {
          result = value;
          best = at;
        }
      }
    }
    if (op.kind == OpKind::kMaxPool) {
      winners[i] = static_cast<int32_t>(best);
      out[i] = result;
    } else {
      out[i] = result * op.factor;
    }
  }
  team.Sync();
}

// Every input pixel adds up what its windows give it, in their order.
MACAW_INLINE_KERNEL void PoolBackward(const device::Team& team, const Pass& pass, const Op& op) {
  const float* const d_out = pass.Gradient(op.out);
  const auto* const winners = reinterpret_cast<const int32_t*>(pass.Kept(op));
  const InputSink sink(pass, op.in, op.adds);
  const uint32_t count = pass.rows * op.in.size;
  const uint32_t plane_in = op.in_plane.value, plane_out = op.out_plane.value;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t channel = op.in_plane.Quotient(i), pixel = i - channel * plane_in;
    const uint32_t y = op.in_width.Quotient(pixel), x = pixel - y * op.in_width.value;
    // The windows that the pixel lies in: the first one begins kernel − 1 before it or later.
    const uint32_t height = op.kernel_height, width = op.kernel_width, stride = op.stride;
    const uint32_t top = y < height ? 0 : op.stride_by.Quotient(y - height + stride);
    const uint32_t left = x < width ? 0 : op.stride_by.Quotient(x - width + stride);
    const uint32_t bottom = Least(op.stride_by.Quotient(y), op.out.height - 1);
    const uint32_t right = Least(op.stride_by.Quotient(x), op.out.width - 1);
    float d = 0;
    for (uint32_t oy = top; oy <= bottom; ++oy) {
      for (uint32_t ox = left; ox <= right; ++ox) {
        const uint32_t at = channel * plane_out + oy * op.out.width + ox;
        if (op.kind == OpKind::kAvgPool) {
          d += d_out[at] * op.factor;
        } else if (winners[at] == static_cast<int32_t>(pixel)) {
          d += d_out[at];
        }
      }
    }
    sink.Put(i, d);
  }
  team.Sync();
}

// Group norm (Wu and He, 2018): y = γ·(x − mean)/√(variance + ε) + β, over a group of channels of a
// row. Kept: mean and 1/√… of each group of each row. Moments are added in double, in kMomentLanes
// shares a channel, then by share and channel.
constexpr float kNormEpsilon = 1e-5f;  // PyTorch's

// Writes f(channel of a row, i), summed over the channel's pixels, to lanes[channel · 8 + share].
template <typename F>
MACAW_INLINE_KERNEL void SumChannels(const device::Team& team, uint32_t channels, uint32_t plane,
                                     double* lanes, const F& f) {
  const uint32_t count = channels * kMomentLanes;
  for (uint32_t v = team.thread; v < count; v += team.threads) {
    const uint32_t channel = v / kMomentLanes;
    double sum = 0;
    for (uint32_t i = v % kMomentLanes; i < plane; i += kMomentLanes) sum += f(channel, i);
    lanes[v] = sum;
  }
}

MACAW_INLINE_KERNEL void NormForward(const device::Team& team, const Pass& pass, const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  float* const kept = pass.Kept(op);
  const float* const weight = pass.Weights(op.weight);
  const float* const bias = pass.Weights(op.bias);
  double* const lanes = pass.scratch;
  const uint32_t channels = op.in.channels, per_group = channels / op.groups;
  const uint32_t plane = op.in_plane.value, groups = pass.rows * op.groups;
  const double size = static_cast<double>(per_group) * plane;
  // The channel c of row r, and so group and share, are numbered r · channels + c.
  const auto group_sum = [&](uint32_t group) {
    double sum = 0;
    const uint32_t begin = group * per_group * kMomentLanes;
    for (uint32_t i = 0; i < per_group * kMomentLanes; ++i) sum += lanes[begin + i];
    return sum;
  };
  SumChannels(team, pass.rows * channels, plane, lanes, [&](uint32_t channel, uint32_t i) {
    return static_cast<double>(in[channel * plane + i]);
  });
  team.Sync();
  for (uint32_t g = team.thread; g < groups; g += team.threads) {
    kept[2 * g] = static_cast<float>(group_sum(g) / size);
  }
  team.Sync();
  SumChannels(team, pass.rows * channels, plane, lanes, [&](uint32_t channel, uint32_t i) {
    const double d = static_cast<double>(in[channel * plane + i]) -
                     static_cast<double>(kept[2 * (channel / per_group)]);
    return d * d;
  });
  team.Sync();
  for (uint32_t g = team.thread; g < groups; g += team.threads) {
    kept[2 * g + 1] = 1.0f / device::Sqrt(static_cast<float>(group_sum(g) / size) + kNormEpsilon);
  }
  team.Sync();
  const uint32_t count = pass.rows * op.in.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t channel = op.in_plane.Quotient(i), group = channel / per_group;
    const uint32_t c = channel - channel / channels * channels;
    const float y =
        device::Fma((in[i] - kept[2 * group]) * kept[2 * group + 1], weight[c], bias[c]);
    out[i] = op.out.relu != 0 ? Positive(y) : y;
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void NormBackward(const device::Team& team, const Pass& pass, const Op& op,
                                      bool to_input) {
  const float* const in = pass.Activation(op.in);
  const float* const d_out = pass.Gradient(op.out);
  const float* const kept = pass.Kept(op);
  const float* const weight = pass.Weights(op.weight);
  const uint32_t channels = op.in.channels, per_group = channels / op.groups;
  const uint32_t plane = op.in_plane.value, all = pass.rows * channels;
  const uint32_t groups = pass.rows * op.groups;
  // Of each channel of each row: Σ d, Σ d·x̂, in shares and whole; of each group: Σ γ·d, Σ γ·d·x̂.
  double* const d_lanes = pass.scratch;
  double* const x_lanes = d_lanes + size_t{all} * kMomentLanes;
  double* const of_channel = x_lanes + size_t{all} * kMomentLanes;
  double* const of_group = of_channel + size_t{all} * 2;
  const auto normed = [&](uint32_t channel, uint32_t i) {
    const uint32_t group = channel / per_group;
    return (in[channel * plane + i] - kept[2 * group]) * kept[2 * group + 1];
  };
  SumChannels(team, all, plane, d_lanes, [&](uint32_t channel, uint32_t i) {
    return static_cast<double>(d_out[channel * plane + i]);
  });
  SumChannels(team, all, plane, x_lanes, [&](uint32_t channel, uint32_t i) {
    return static_cast<double>(d_out[channel * plane + i]) *
           static_cast<double>(normed(channel, i));
  });
  team.Sync();
  for (uint32_t channel = team.thread; channel < all; channel += team.threads) {
    double d = 0, x = 0;
    for (uint32_t lane = 0; lane < kMomentLanes; ++lane) {
      d += d_lanes[channel * kMomentLanes + lane];
      x += x_lanes[channel * kMomentLanes + lane];
    }
    of_channel[2 * channel] = d;
    of_channel[2 * channel + 1] = x;
  }
  team.Sync();
  if (to_input) {
    for (uint32_t g = team.thread; g < groups; g += team.threads) {
      double d = 0, x = 0;
      for (uint32_t i = 0; i < per_group; ++i) {
        const uint32_t channel = g * per_group + i;
        const double gamma = weight[channel - channel / channels * channels];
        d += gamma * of_channel[2 * channel];
        x += gamma * of_channel[2 * channel + 1];
      }
      const double size = static_cast<double>(per_group) * plane;
      of_group[2 * g] = d / size;
      of_group[2 * g + 1] = x / size;
    }
    team.Sync();
    const InputSink sink(pass, op.in, op.adds);
    const uint32_t count = pass.rows * op.in.size;
    for (uint32_t i = team.thread; i < count; i += team.threads) {
      const uint32_t channel = op.in_plane.Quotient(i), group = channel / per_group;
      const float x = normed(channel, i - channel * plane);
      const float gamma = weight[channel - channel / channels * channels];
      const float mean = static_cast<float>(of_group[2 * group]);
      const float slope = static_cast<float>(of_group[2 * group + 1]);
      sink.Put(i, kept[2 * group + 1] * (d_out[i] * gamma - device::Fma(x, slope, mean)));
    }
    team.Sync();
  }
  const Sink to_weight(pass, op.weight), to_bias(pass, op.bias);
  for (uint32_t c = team.thread; c < channels; c += team.threads) {
    double d = 0, x = 0;
    for (uint32_t row = 0; row < pass.rows; ++row) {
      d += of_channel[2 * (row * channels + c)];
      x += of_channel[2 * (row * channels + c) + 1];
    }
    to_weight.Put(c, static_cast<float>(x));
    to_bias.Put(c, static_cast<float>(d));
  }
  team.Sync();
}

}  // namespace macaw::training::ondevice
