#pragma once

#include "device/math.h"
#include "training/device/pass-inl.h"

// Norms: y = γ·x̂ + β with x̂ = (x − mean)/√(variance + ε), PyTorch's. Moments are added in double,
// in a fixed number of shares. Each function leaves the team in step.
namespace macaw::training::ondevice {

constexpr float kNormEpsilon = 1e-5f;
constexpr float kBatchNormMomentum = 0.1f;

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

// Group norm (Wu and He, 2018): moments over a group of channels of a row, added by share and
// channel. Kept: mean and 1/√… of each group of each row.
MACAW_INLINE_KERNEL void GroupNormForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  float* const kept = pass.Kept(op.kept);
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

MACAW_INLINE_KERNEL void GroupNormBackward(const device::Team& team, const Pass& pass, const Op& op,
                                           bool to_input) {
  const float* const in = pass.Activation(op.in);
  const float* const d_out = pass.Gradient(op.out);
  const float* const kept = pass.Kept(op.kept);
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

// Layer norm (Ba et al., 2016): moments over a vector, one of each position. Kept: mean and 1/√… of
// each vector.
MACAW_INLINE_KERNEL void LayerNormForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  float* const kept = pass.Kept(op.kept);
  const float* const weight = pass.Weights(op.weight);
  const float* const bias = pass.Weights(op.bias);
  double* const lanes = pass.scratch;
  const uint32_t width = op.in_vector.value, vectors = pass.rows * op.positions;
  const auto sum_of = [&](uint32_t vector) {
    double sum = 0;
    for (uint32_t lane = 0; lane < kMomentLanes; ++lane) sum += lanes[vector * kMomentLanes + lane];
    return sum;
  };
  SumChannels(team, vectors, width, lanes, [&](uint32_t vector, uint32_t i) {
    return static_cast<double>(in[vector * width + i]);
  });
  team.Sync();
  for (uint32_t v = team.thread; v < vectors; v += team.threads) {
    kept[2 * v] = static_cast<float>(sum_of(v) / width);
  }
  team.Sync();
  SumChannels(team, vectors, width, lanes, [&](uint32_t vector, uint32_t i) {
    const double d =
        static_cast<double>(in[vector * width + i]) - static_cast<double>(kept[2 * vector]);
    return d * d;
  });
  team.Sync();
  for (uint32_t v = team.thread; v < vectors; v += team.threads) {
    kept[2 * v + 1] = 1.0f / device::Sqrt(static_cast<float>(sum_of(v) / width) + kNormEpsilon);
  }
  team.Sync();
  for (uint32_t i = team.thread; i < vectors * width; i += team.threads) {
    const uint32_t vector = op.in_vector.Quotient(i), c = i - vector * width;
    out[i] = device::Fma((in[i] - kept[2 * vector]) * kept[2 * vector + 1], weight[c], bias[c]);
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void LayerNormBackward(const device::Team& team, const Pass& pass, const Op& op,
                                           bool to_input) {
  const float* const in = pass.Activation(op.in);
  const float* const d_out = pass.Gradient(op.out);
  const float* const kept = pass.Kept(op.kept);
  const float* const weight = pass.Weights(op.weight);
  const uint32_t width = op.in_vector.value, vectors = pass.rows * op.positions;
  const auto normed = [&](uint32_t vector, uint32_t i) {
    return (in[vector * width + i] - kept[2 * vector]) * kept[2 * vector + 1];
  };
  if (to_input) {
    // Of each vector: the means of γ·d and γ·d·x̂.
    double* const d_lanes = pass.scratch;
    double* const x_lanes = d_lanes + size_t{vectors} * kMomentLanes;
    double* const means = x_lanes + size_t{vectors} * kMomentLanes;
    SumChannels(team, vectors, width, d_lanes, [&](uint32_t vector, uint32_t i) {
      return static_cast<double>(d_out[vector * width + i]) * static_cast<double>(weight[i]);
    });
    SumChannels(team, vectors, width, x_lanes, [&](uint32_t vector, uint32_t i) {
      return static_cast<double>(d_out[vector * width + i]) * static_cast<double>(weight[i]) *
             static_cast<double>(normed(vector, i));
    });
    team.Sync();
    for (uint32_t v = team.thread; v < vectors; v += team.threads) {
      double d = 0, x = 0;
      for (uint32_t lane = 0; lane < kMomentLanes; ++lane) {
        d += d_lanes[v * kMomentLanes + lane];
        x += x_lanes[v * kMomentLanes + lane];
      }
      means[2 * v] = d / width;
      means[2 * v + 1] = x / width;
    }
    team.Sync();
    const InputSink sink(pass, op.in, op.adds);
    for (uint32_t i = team.thread; i < vectors * width; i += team.threads) {
      const uint32_t vector = op.in_vector.Quotient(i), c = i - vector * width;
      const float mean = static_cast<float>(means[2 * vector]);
      const float slope = static_cast<float>(means[2 * vector + 1]);
      sink.Put(i, kept[2 * vector + 1] *
                      (d_out[i] * weight[c] - device::Fma(normed(vector, c), slope, mean)));
    }
    team.Sync();
  }
  // Of each element of the vectors: Σ d, Σ d·x̂, in shares of the vectors.
  double* const lanes = pass.scratch;
  for (uint32_t i = team.thread; i < width * kMomentLanes; i += team.threads) {
    const uint32_t c = i / kMomentLanes;
    double d = 0, x = 0;
    for (uint32_t v = i % kMomentLanes; v < vectors; v += kMomentLanes) {
      const double d_v = d_out[v * width + c];
      d += d_v;
      x += d_v * static_cast<double>(normed(v, c));
    }
    lanes[2 * i] = d;
    lanes[2 * i + 1] = x;
  }
  team.Sync();
  const Sink to_weight(pass, op.weight), to_bias(pass, op.bias);
  for (uint32_t c = team.thread; c < width; c += team.threads) {
    double d = 0, x = 0;
    for (uint32_t lane = 0; lane < kMomentLanes; ++lane) {
      d += lanes[2 * (c * kMomentLanes + lane)];
      x += lanes[2 * (c * kMomentLanes + lane) + 1];
    }
    to_weight.Put(c, static_cast<float>(x));
    to_bias.Put(c, static_cast<float>(d));
  }
  team.Sync();
}

// Batch norm (Ioffe and Szegedy, 2015): moments of a channel over all rows of the batch, which is
// one pass; outside training, or where a channel has a single value, the running ones. Kept: mean
// and 1/√… of each channel.
MACAW_INLINE_KERNEL bool TakesMomentsOfBatch(const Pass& pass, const Op& op) {
  return pass.job.kind != JobKind::kLoss && pass.program.moves_buffers != 0 &&
         pass.rows * op.in_plane.value > 1;
}

// Writes f(i, channel's pixel), summed over the channel's elements i in the batch, to
// lanes[channel · kBatchLanes + share].
template <typename F>
MACAW_INLINE_KERNEL void SumBatch(const device::Team& team, const Pass& pass, const Op& op,
                                  double* lanes, const F& f) {
  const uint32_t plane = op.in_plane.value, values = pass.rows * plane;
  for (uint32_t v = team.thread; v < op.in.channels * kBatchLanes; v += team.threads) {
    const uint32_t channel = v / kBatchLanes;
    double sum = 0;
    for (uint32_t i = v % kBatchLanes; i < values; i += kBatchLanes) {
      const uint32_t row = op.in_plane.Quotient(i);
      sum += f(channel, row * op.in.size + channel * plane + (i - row * plane));
    }
    lanes[v] = sum;
  }
}

MACAW_INLINE_KERNEL double SumOfLanes(const double* lanes, uint32_t channel) {
  double sum = 0;
  for (uint32_t lane = 0; lane < kBatchLanes; ++lane) sum += lanes[channel * kBatchLanes + lane];
  return sum;
}

MACAW_INLINE_KERNEL void BatchNormForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  float* const kept = pass.Kept(op.kept);
  const float* const weight = pass.Weights(op.weight);
  const float* const bias = pass.Weights(op.bias);
  double* const lanes = pass.scratch;
  const uint32_t channels = op.in.channels;
  const double values = static_cast<double>(pass.rows) * op.in_plane.value;
  if (TakesMomentsOfBatch(pass, op)) {
    SumBatch(team, pass, op, lanes,
             [&](uint32_t, uint32_t i) { return static_cast<double>(in[i]); });
    team.Sync();
    for (uint32_t c = team.thread; c < channels; c += team.threads) {
      kept[2 * c] = static_cast<float>(SumOfLanes(lanes, c) / values);
    }
    team.Sync();
    SumBatch(team, pass, op, lanes, [&](uint32_t channel, uint32_t i) {
      const double d = static_cast<double>(in[i]) - static_cast<double>(kept[2 * channel]);
      return d * d;
    });
    team.Sync();
    // The running moments move while a client trains; the variance is the unbiased one.
    float* const means = pass.job.kind != JobKind::kTrain
                             ? nullptr
                             : pass.job.weights + pass.program.tensors[op.buffer].offset;
    float* const variances =
        means == nullptr ? nullptr : pass.job.weights + pass.program.tensors[op.buffer + 1].offset;
    for (uint32_t c = team.thread; c < channels; c += team.threads) {
      const double squares = SumOfLanes(lanes, c);
      kept[2 * c + 1] = 1.0f / device::Sqrt(static_cast<float>(squares / values) + kNormEpsilon);
      if (means == nullptr) continue;
      const auto unbiased = static_cast<float>(squares / (values - 1));
      means[c] = (1 - kBatchNormMomentum) * means[c] + kBatchNormMomentum * kept[2 * c];
      variances[c] = (1 - kBatchNormMomentum) * variances[c] + kBatchNormMomentum * unbiased;
    }
  } else {
    const float* const means = pass.Weights(op.buffer);
    const float* const variances = pass.Weights(op.buffer + 1);
    for (uint32_t c = team.thread; c < channels; c += team.threads) {
      kept[2 * c] = means[c];
      kept[2 * c + 1] = 1.0f / device::Sqrt(variances[c] + kNormEpsilon);
    }
  }
  team.Sync();
  const uint32_t count = pass.rows * op.in.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t channel = op.in_plane.Quotient(i);
    const uint32_t c = channel - channel / channels * channels;
    const float y = device::Fma((in[i] - kept[2 * c]) * kept[2 * c + 1], weight[c], bias[c]);
    out[i] = op.out.relu != 0 ? Positive(y) : y;
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void BatchNormBackward(const device::Team& team, const Pass& pass, const Op& op,
                                           bool to_input) {
  const float* const in = pass.Activation(op.in);
  const float* const d_out = pass.Gradient(op.out);
  const float* const kept = pass.Kept(op.kept);
  const float* const weight = pass.Weights(op.weight);
  const uint32_t channels = op.in.channels;
  const double values = static_cast<double>(pass.rows) * op.in_plane.value;
  // Of each channel: Σ d, Σ d·x̂, in shares and whole.
  double* const d_lanes = pass.scratch;
  double* const x_lanes = d_lanes + size_t{channels} * kBatchLanes;
  double* const of_channel = x_lanes + size_t{channels} * kBatchLanes;
  const auto normed = [&](uint32_t channel, uint32_t i) {
    return (in[i] - kept[2 * channel]) * kept[2 * channel + 1];
  };
  SumBatch(team, pass, op, d_lanes,
           [&](uint32_t, uint32_t i) { return static_cast<double>(d_out[i]); });
  SumBatch(team, pass, op, x_lanes, [&](uint32_t channel, uint32_t i) {
    return static_cast<double>(d_out[i]) * static_cast<double>(normed(channel, i));
  });
  team.Sync();
  for (uint32_t c = team.thread; c < channels; c += team.threads) {
    of_channel[2 * c] = SumOfLanes(d_lanes, c);
    of_channel[2 * c + 1] = SumOfLanes(x_lanes, c);
  }
  team.Sync();
  if (to_input) {
    // Running moments do not depend on the input.
    const bool of_batch = TakesMomentsOfBatch(pass, op);
    const InputSink sink(pass, op.in, op.adds);
    const uint32_t count = pass.rows * op.in.size;
    for (uint32_t i = team.thread; i < count; i += team.threads) {
      const uint32_t channel = op.in_plane.Quotient(i);
      const uint32_t c = channel - channel / channels * channels;
      float d = d_out[i];
      if (of_batch) {
        const float mean = static_cast<float>(of_channel[2 * c] / values);
        const float slope = static_cast<float>(of_channel[2 * c + 1] / values);
        d -= device::Fma(normed(c, i), slope, mean);
      }
      sink.Put(i, weight[c] * kept[2 * c + 1] * d);
    }
    team.Sync();
  }
  const Sink to_weight(pass, op.weight), to_bias(pass, op.bias);
  for (uint32_t c = team.thread; c < channels; c += team.threads) {
    to_weight.Put(c, static_cast<float>(of_channel[2 * c + 1]));
    to_bias.Put(c, static_cast<float>(of_channel[2 * c]));
  }
  team.Sync();
}

}  // namespace macaw::training::ondevice
