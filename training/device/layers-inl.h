#pragma once

#include "device/math.h"
#include "training/device/pass-inl.h"

// Layers without products: each element by itself, and windows. Each function leaves the team in
// step.
namespace macaw::training::ondevice {

// The standard normal distribution: the probability below x.
MACAW_INLINE_KERNEL float NormalBelow(float x) {
  return 0.5f * (1.0f + device::Erf(x * 0.70710678f));
}

// The derivative of x · NormalBelow(x).
MACAW_INLINE_KERNEL float GeluSlope(float x) {
  return NormalBelow(x) + x * 0.39894228f * device::Exp(-0.5f * x * x);
}

MACAW_INLINE_KERNEL void ElementsForward(const device::Team& team, const Pass& pass, const Op& op) {
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  const float* const weight = pass.Weights(op.weight);
  const uint32_t count = pass.rows * op.out.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    float x = in[i];
    switch (op.kind) {
      case OpKind::kTanh:
        x = device::Tanh(x);
        break;
      case OpKind::kSigmoid:
        x = device::Sigmoid(x);
        break;
      case OpKind::kGelu:
        x = x * NormalBelow(x);
        break;
      case OpKind::kPositions:
        x = x + weight[op.out_size.Remainder(i)];
        break;
      case OpKind::kAdd:
        x = device::Fma(op.factor, pass.Activation(op.in2)[i], x);
        if (op.out.relu != 0) x = Positive(x);
        break;
      case OpKind::kDropout:
        x *= DropoutFactor(pass, op, op.out.size, i);
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
  const float* const in = pass.Activation(op.in);
  const float* const out = pass.Activation(op.out);
  const float* const d_out = pass.Gradient(op.out);
  const InputSink sink(pass, op.in, op.adds), sink2(pass, op.in2, op.adds2);
  const uint32_t count = pass.rows * op.out.size;
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
      case OpKind::kGelu:
        d *= GeluSlope(in[i]);
        break;
      case OpKind::kPositions:
        break;
      case OpKind::kAdd:
        if (sink2.gradient != nullptr) sink2.Put(i, op.factor * d);
        break;
      case OpKind::kDropout:
        d *= DropoutFactor(pass, op, op.out.size, i);
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
  auto* const winners = reinterpret_cast<int32_t*>(pass.Kept(op.kept));  // of kMaxPool
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
  const auto* const winners = reinterpret_cast<const int32_t*>(pass.Kept(op.kept));
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

}  // namespace macaw::training::ondevice
