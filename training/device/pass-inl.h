#pragma once

#include "device/math.h"
#include "device/philox.h"
#include "training/device/gemm-inl.h"
#include "training/device/ops.h"

namespace macaw::training::ondevice {

// What becomes of a pass's weight gradients.
enum class Mode : uint32_t {
  kNone,   // there is no backward pass
  kStep,   // each is used at once for the step of its weight, and never stored
  kWrite,  // they are written to the job's gradient
  kAdd,    // they are added to it
};

// One pass: some rows of a step, forward and back.
struct Pass {
  const Program& program;
  const ClientJob& job;
  const JobStep& step;
  const float* weights;
  float* activations;
  float* gradients;
  double* scratch;
  uint32_t capacity;  // rows for which there is memory
  uint32_t first;     // row of the step
  uint32_t rows;
  Mode mode;

  MACAW_INLINE_KERNEL float* Activation(const Value& value) const {
    return activations + size_t{value.at} * capacity;
  }
  // What was kept there.
  MACAW_INLINE_KERNEL float* Kept(uint32_t place) const {
    return activations + size_t{place} * capacity;
  }
  // Null: nobody needs it.
  MACAW_INLINE_KERNEL float* Gradient(const Value& value) const {
    return value.gradient == kNothing ? nullptr : gradients + size_t{value.gradient} * capacity;
  }
  MACAW_INLINE_KERNEL const float* Weights(uint32_t tensor) const {
    return tensor == kNothing ? nullptr : weights + program.tensors[tensor].offset;
  }
  MACAW_INLINE_KERNEL bool Trains(uint32_t tensor) const {
    return tensor != kNothing && (job.trainable == nullptr || job.trainable[tensor] != 0);
  }
  MACAW_INLINE_KERNEL uint32_t PositionOf(uint32_t row) const {
    const uint32_t place = step.begin + first + row;
    return job.order == nullptr ? place : job.order[place];
  }
  // Of a row's positions, those in use.
  MACAW_INLINE_KERNEL uint32_t LengthOf(uint32_t row, uint32_t positions) const {
    return job.lengths == nullptr ? positions : static_cast<uint32_t>(job.lengths[PositionOf(row)]);
  }
};

// What dropout multiplies element i of a pass with, of an operation with `size` elements a row.
// Words are drawn layer by layer for the whole batch.
MACAW_INLINE_KERNEL float DropoutFactor(const Pass& pass, const Op& op, uint32_t size, uint32_t i) {
  if (pass.job.has_dropout == 0) return 1.0f;
  const uint64_t word = op.dropout_base * pass.step.rows + uint64_t{pass.first} * size + i;
  return device::PhiloxWord(pass.step.key, pass.step.high, word) >= op.dropped ? op.factor : 0.0f;
}

// d + μ(w − a) + v.
MACAW_INLINE_KERNEL float Corrected(const ClientJob& job, uint32_t i, float w, float d) {
  if (job.mu != 0) d += job.mu * (w - job.anchor[i]);
  if (job.v != nullptr) d += job.v[i];
  return d;
}

// One weight's step, in the order and with the bits of training::SgdStep. `corrects`: the gradient
// is not corrected yet.
MACAW_INLINE_KERNEL void StepElement(const ClientJob& job, uint32_t i, float gradient, float scale,
                                     bool corrects) {
  const float w = job.weights[i];
  float d = gradient * scale;
  if (corrects) d = Corrected(job, i, w, d);
  d += job.decay * w;
  if (job.momentum != nullptr) {
    const float m = job.rho * job.momentum[i] + d;
    job.momentum[i] = m;
    d = job.nesterov != 0 ? d + job.rho * m : m;
  }
  job.weights[i] = w - job.lr * d;
}

// The same of training::AdamStep.
MACAW_INLINE_KERNEL void AdamElement(const ClientJob& job, const AdamNumbers<float>& n, uint32_t i,
                                     float gradient, float scale, bool corrects) {
  const float w = job.weights[i];
  float d = gradient * scale;
  if (corrects) d = Corrected(job, i, w, d);
  if (job.decay != 0) d += job.decay * w;
  float m = job.momentum[i];
  // As PyTorch's lerp: computed from the nearer end.
  m = n.first_new < 0.5f ? m + n.first_new * (d - m) : d - (d - m) * n.first_old;
  const float s = job.second[i] * n.second_old + n.second_new * d * d;
  job.momentum[i] = m;
  job.second[i] = s;
  job.weights[i] = w * n.keep - n.rate * m / (device::Sqrt(s) / n.root + n.epsilon);
}

// Takes the gradients of one tensor's weights.
struct Sink {
  const ClientJob& job;
  Mode mode;
  uint32_t offset;
  bool trains;

  MACAW_INLINE_KERNEL Sink(const Pass& pass, uint32_t tensor)
      : job(pass.job),
        mode(pass.mode),
        offset(tensor == kNothing ? 0 : pass.program.tensors[tensor].offset),
        trains(pass.Trains(tensor)) {}

  MACAW_INLINE_KERNEL void Put(uint32_t i, float gradient) const {
    if (!trains) return;
    if (mode == Mode::kStep) {
      StepElement(job, offset + i, gradient, 1.0f, /*corrects=*/true);
    } else {
      float& total = job.gradient[offset + i];
      total = mode == Mode::kAdd ? total + gradient : gradient;
    }
  }
};

// Takes the gradient of an operation's input.
struct InputSink {
  float* gradient;
  const float* input;  // null: not the positive part of something
  bool adds;

  MACAW_INLINE_KERNEL InputSink(const Pass& pass, const Value& in, uint32_t adds_to)
      : gradient(pass.Gradient(in)),
        input(in.relu != 0 ? pass.Activation(in) : nullptr),
        adds(adds_to != 0) {}

  MACAW_INLINE_KERNEL void Put(uint32_t i, float d) const {
    if (input != nullptr && input[i] <= 0) d = 0;
    gradient[i] = adds ? gradient[i] + d : d;
  }
};

MACAW_INLINE_KERNEL float Positive(float x) { return x < 0 ? 0.0f : x; }  // keeps not-a-numbers

}  // namespace macaw::training::ondevice
