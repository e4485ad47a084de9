#pragma once

#include "training/device/pass-inl.h"

// Layers that know positions, without products. A sequence is [positions, width] floats of a row.
// Each function leaves the team in step.
namespace macaw::training::ondevice {

MACAW_INLINE_KERNEL const int32_t* TokensOf(const Pass& pass, const Op& op, uint32_t row) {
  return reinterpret_cast<const int32_t*>(pass.job.features) +
         size_t{pass.PositionOf(row)} * op.positions;
}

MACAW_INLINE_KERNEL void EmbeddingForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const weight = pass.Weights(op.weight);
  float* const out = pass.Activation(op.out);
  const uint32_t width = op.out_vector.value, count = pass.rows * op.out.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t vector = op.out_vector.Quotient(i), row = vector / op.positions;
    const int32_t token = TokensOf(pass, op, row)[vector - row * op.positions];
    out[i] = weight[static_cast<uint32_t>(token) * width + (i - vector * width)];
  }
  team.Sync();
}

// A thread adds up an element of all tokens' vectors, position by position. The gradient is stored
// (CompiledModel::keeps_gradients).
MACAW_INLINE_KERNEL void EmbeddingBackward(const device::Team& team, const Pass& pass,
                                           const Op& op) {
  if (!pass.Trains(op.weight)) return;
  const float* const d_out = pass.Gradient(op.out);
  const Tensor& tensor = pass.program.tensors[op.weight];
  float* const gradient = pass.job.gradient + tensor.offset;
  const uint32_t width = op.out_vector.value;
  for (uint32_t i = team.thread; pass.mode == Mode::kWrite && i < tensor.size; i += team.threads) {
    gradient[i] = 0;
  }
  team.Sync();
  for (uint32_t c = team.thread; c < width; c += team.threads) {
    for (uint32_t row = 0; row < pass.rows; ++row) {
      const int32_t* const tokens = TokensOf(pass, op, row);
      const float* const d = d_out + row * op.out.size + c;
      for (uint32_t t = 0; t < op.positions; ++t) {
        gradient[static_cast<uint32_t>(tokens[t]) * width + c] += d[t * width];
      }
    }
  }
  team.Sync();
}

// The gradient of what is added to each row: its sum over rows.
MACAW_INLINE_KERNEL void PositionsBackward(const device::Team& team, const Pass& pass,
                                           const Op& op) {
  const float* const d_out = pass.Gradient(op.out);
  const Sink weight(pass, op.weight);
  for (uint32_t i = team.thread; weight.trains && i < op.out.size; i += team.threads) {
    float d = 0;
    for (uint32_t row = 0; row < pass.rows; ++row) d += d_out[row * op.out.size + i];
    weight.Put(i, d);
  }
  team.Sync();
}

// One vector of a sequence: that of the last position in use, or the mean over those in use.
MACAW_INLINE_KERNEL void OneVectorForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  const uint32_t width = op.in_vector.value;
  for (uint32_t i = team.thread; i < pass.rows * width; i += team.threads) {
    const uint32_t row = op.in_vector.Quotient(i);
    const uint32_t length = pass.LengthOf(row, op.positions);
    const float* const x = in + row * op.in.size + (i - row * width);
    if (op.kind == OpKind::kLast) {
      out[i] = x[(length - 1) * width];
      continue;
    }
    float sum = 0;
    for (uint32_t t = 0; t < length; ++t) sum += x[t * width];
    out[i] = sum / static_cast<float>(length);
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void OneVectorBackward(const device::Team& team, const Pass& pass,
                                           const Op& op) {
  const float* const d_out = pass.Gradient(op.out);
  const InputSink sink(pass, op.in, op.adds);
  const uint32_t width = op.in_vector.value, count = pass.rows * op.in.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t row = op.in_size.Quotient(i), element = i - row * op.in.size;
    const uint32_t t = op.in_vector.Quotient(element), length = pass.LengthOf(row, op.positions);
    float d = d_out[row * width + (element - t * width)];
    if (op.kind == OpKind::kLast) {
      d = t + 1 == length ? d : 0.0f;
    } else {
      d = t < length ? d / static_cast<float>(length) : 0.0f;
    }
    sink.Put(i, d);
  }
  team.Sync();
}

}  // namespace macaw::training::ondevice
