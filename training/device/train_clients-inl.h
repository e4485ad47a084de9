#pragma once

#include "training/device/attention-inl.h"
#include "training/device/layers-inl.h"
#include "training/device/loss-inl.h"
#include "training/device/norms-inl.h"
#include "training/device/products-inl.h"
#include "training/device/recurrent-inl.h"
#include "training/device/sequence-inl.h"

// The kernel that trains clients: a block takes a client and does its stage, pass after pass, as
// far as the launch goes; the next launch goes on from there. Blocks share nothing, so a client's
// bits depend on its job alone. Within a block, every element has one thread and one order
// (device/kernel.h), so they do not depend on the number of threads.
namespace macaw::training::ondevice {

// Which of a line's pixels the place `at`, inside or outside of it, shows (data/gather.cc).
MACAW_INLINE_KERNEL int32_t PaddedFrom(int32_t at, int32_t extent, Padding padding) {
  if (at >= 0 && at < extent) return at;
  if (padding == Padding::kEdge) return at < 0 ? 0 : extent - 1;
  return at < 0 ? -at : 2 * (extent - 1) - at;
}

// Writes the pass's rows, normalised and moved, to the first operation's input. Tokens are read
// where they are.
MACAW_INLINE_KERNEL void Gather(const device::Team& team, const Pass& pass) {
  const Program& program = pass.program;
  if (program.tokens != 0) return;
  const uint32_t elements = program.elements.value, count = pass.rows * elements;
  float* const to = pass.Activation(program.input);
  const auto height = static_cast<int32_t>(program.height);
  const auto width = static_cast<int32_t>(program.width);
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t row = program.elements.Quotient(i);
    uint32_t element = i - row * elements;
    const uint32_t place = pass.step.begin + pass.first + row;
    const size_t example = size_t{pass.PositionOf(row)} * elements;
    const uint32_t channel = program.plane.Quotient(element);
    bool inside = true;
    if (pass.job.moves != nullptr) {
      const MoveCode move = pass.job.moves[place];
      const uint32_t pixel = element - channel * program.plane.value;
      const uint32_t line = program.line.Quotient(pixel);
      int32_t x = static_cast<int32_t>(pixel - line * program.line.value);
      if ((move >> 30 & 1) != 0) x = width - 1 - x;
      const auto pad = static_cast<int32_t>(pass.job.pad);
      int32_t y = static_cast<int32_t>(line) + static_cast<int32_t>(move & 0x7FFF) - pad;
      x += static_cast<int32_t>(move >> 15 & 0x7FFF) - pad;
      inside = y >= 0 && y < height && x >= 0 && x < width;
      if (!inside && pass.job.padding != Padding::kZeros) {
        y = PaddedFrom(y, height, pass.job.padding);
        x = PaddedFrom(x, width, pass.job.padding);
        inside = true;
      }
      element = channel * program.plane.value + static_cast<uint32_t>(y * width + x);
    }
    float value = 0;
    if (inside) {
      value = program.bytes_features != 0
                  ? static_cast<float>(
                        reinterpret_cast<const uint8_t*>(pass.job.features)[example + element])
                  : reinterpret_cast<const float*>(pass.job.features)[example + element];
      if (program.identity == 0) {
        const uint32_t c = program.channels_each != 0 ? channel : 0;
        value = value * program.scale[c] + program.shift[c];
      }
    }
    to[i] = value;
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void Forward(const device::Team& team, const Pass& pass) {
  for (uint32_t i = 0; i < pass.program.op_count; ++i) {
    const Op& op = pass.program.ops[i];
    switch (op.kind) {
      case OpKind::kLinear:
        LinearForward(team, pass, op);
        break;
      case OpKind::kConv:
        ConvForward(team, pass, op);
        break;
      case OpKind::kMaxPool:
      case OpKind::kAvgPool:
        PoolForward(team, pass, op);
        break;
      case OpKind::kGroupNorm:
        GroupNormForward(team, pass, op);
        break;
      case OpKind::kBatchNorm:
        BatchNormForward(team, pass, op);
        break;
      case OpKind::kLayerNorm:
        LayerNormForward(team, pass, op);
        break;
      case OpKind::kEmbedding:
        EmbeddingForward(team, pass, op);
        break;
      case OpKind::kLast:
      case OpKind::kMean:
        OneVectorForward(team, pass, op);
        break;
      case OpKind::kLstm:
      case OpKind::kGru:
        RecurrentForward(team, pass, op);
        break;
      case OpKind::kAttention:
        AttentionForward(team, pass, op);
        break;
      default:
        ElementsForward(team, pass, op);
        break;
    }
  }
}

MACAW_INLINE_KERNEL void Backward(const device::Team& team, const Pass& pass) {
  const uint32_t lowest = pass.job.lowest;
  for (uint32_t i = pass.program.op_count; i-- > lowest;) {
    const Op& op = pass.program.ops[i];
    // The gradients of what lies below are of use to somebody.
    const bool to_input = i > lowest && op.in.gradient != kNothing;
    switch (op.kind) {
      case OpKind::kLinear:
        LinearBackward(team, pass, op, to_input);
        break;
      case OpKind::kConv:
        ConvBackward(team, pass, op, to_input);
        break;
      case OpKind::kMaxPool:
      case OpKind::kAvgPool:
        if (to_input) PoolBackward(team, pass, op);
        break;
      case OpKind::kGroupNorm:
        GroupNormBackward(team, pass, op, to_input);
        break;
      case OpKind::kBatchNorm:
        BatchNormBackward(team, pass, op, to_input);
        break;
      case OpKind::kLayerNorm:
        LayerNormBackward(team, pass, op, to_input);
        break;
      case OpKind::kEmbedding:
        EmbeddingBackward(team, pass, op);
        break;
      case OpKind::kLast:
      case OpKind::kMean:
        if (to_input) OneVectorBackward(team, pass, op);
        break;
      case OpKind::kLstm:
      case OpKind::kGru:
        RecurrentBackward(team, pass, op, to_input);
        break;
      case OpKind::kAttention:
        if (to_input) AttentionBackward(team, pass, op);
        break;
      case OpKind::kPositions:
        if (i > lowest) ElementsBackward(team, pass, op);
        PositionsBackward(team, pass, op);
        break;
      default:
        if (i > lowest) ElementsBackward(team, pass, op);
        break;
    }
  }
}

// The factor of the norm clip. All threads get it.
MACAW_INLINE_KERNEL float ClipScale(const device::Team& team, const Program& program,
                                    const ClientJob& job, double* lanes) {
  for (uint32_t lane = team.thread; lane < kNormLanes; lane += team.threads) {
    double sum = 0;
    for (uint32_t i = lane; i < program.vector_size; i += kNormLanes) {
      const double g = job.gradient[i];
      sum += g * g;
    }
    lanes[lane] = sum;
  }
  team.Sync();
  double squares = 0;
  for (uint32_t lane = 0; lane < kNormLanes; ++lane) squares += lanes[lane];
  const double norm = device::Sqrt(squares);
  team.Sync();
  return norm > job.clip_norm ? static_cast<float>(job.clip_norm / norm) : 1.0f;
}

// Calls function(i) for all weights that steps move.
template <typename Function>
MACAW_INLINE_KERNEL void ForTrained(const device::Team& team, const Program& program,
                                    const ClientJob& job, const Function& function) {
  for (uint32_t t = 0; t < program.tensor_count; ++t) {
    if (program.tensors[t].buffer != 0) continue;
    if (job.trainable != nullptr && job.trainable[t] == 0) continue;
    const uint32_t begin = program.tensors[t].offset, end = begin + program.tensors[t].size;
    for (uint32_t i = begin + team.thread; i < end; i += team.threads) function(i);
  }
}

// Step number `step` (0, 1, …) of all weights that are trained, from the job's gradient.
MACAW_INLINE_KERNEL void Update(const device::Team& team, const Program& program,
                                const ClientJob& job, uint32_t step, double* scratch) {
  const bool corrects = job.clip_corrected == 0;
  if (!corrects) {
    ForTrained(team, program, job, [&](uint32_t i) {
      job.gradient[i] = Corrected(job, i, job.weights[i], job.gradient[i]);
    });
    team.Sync();
  }
  const float scale = job.clip_norm > 0 ? ClipScale(team, program, job, scratch) : 1.0f;
  if (job.adam != nullptr) {
    const AdamNumbers<float> numbers = job.adam[step];
    ForTrained(team, program, job,
               [&](uint32_t i) { AdamElement(job, numbers, i, job.gradient[i], scale, corrects); });
  } else {
    ForTrained(team, program, job,
               [&](uint32_t i) { StepElement(job, i, job.gradient[i], scale, corrects); });
  }
  team.Sync();
}

// Copies the start, adds up the correction and zeroes what has to be.
MACAW_INLINE_KERNEL void Begin(const device::Team& team, const Program& program,
                               const ClientJob& job) {
  for (uint32_t i = team.thread; i < program.vector_size; i += team.threads) {
    if (job.weights != nullptr) job.weights[i] = job.start[i];
    if (job.gradient != nullptr) job.gradient[i] = 0;
    if (job.momentum != nullptr) job.momentum[i] = 0;
    if (job.second != nullptr) job.second[i] = 0;
    if (job.v_sum == nullptr) continue;
    float sum = 0;
    for (uint32_t t = 0; t < job.term_count; ++t) {
      const float term = job.terms[t].factor * job.terms[t].point[i];
      sum = t == 0 ? term : sum + term;
    }
    job.v_sum[i] = sum;
  }
  if (team.thread == 0) {
    for (uint32_t i = 0; i < kMostSums; ++i) job.sums[i] = 0;
  }
  team.Sync();
}

// Buffers that a stage keeps moved with the batches, whose moments it takes. Puts them back.
MACAW_INLINE_KERNEL void RestoreBuffers(const device::Team& team, const Program& program,
                                        const ClientJob& job) {
  for (uint32_t t = 0; t < program.tensor_count; ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.buffer == 0 || job.trainable[t] != 0) continue;
    for (uint32_t i = team.thread; i < tensor.size; i += team.threads) {
      job.weights[tensor.offset + i] = job.start[tensor.offset + i];
    }
  }
  team.Sync();
}

// Copies the outputs of the pass for the host, which counts them.
MACAW_INLINE_KERNEL void KeepOutputs(const device::Team& team, const Pass& pass) {
  const uint32_t outputs = pass.program.outputs * pass.program.positions;
  const float* const z = pass.Activation(pass.program.logits);
  float* const kept = pass.job.outputs + size_t{pass.first} * outputs;
  for (uint32_t i = team.thread; i < pass.rows * outputs; i += team.threads) kept[i] = z[i];
  team.Sync();
}

MACAW_INLINE_KERNEL void TrainClients(const TrainArgs& args, const device::Team& team) {
  const Program& program = args.program;
  const JobMemory memory(program, args.pass_rows);
  for (uint32_t j = team.block; j < args.count; j += team.blocks) {
    const ClientJob& job = args.jobs[j];
    JobCursor& cursor = args.cursors[j];
    uint32_t s = cursor.step, first = cursor.row;
    if (s == 0 && first == 0) {
      Begin(team, program, job);
    } else if (s >= job.steps) {
      continue;  // done by an earlier launch
    }
    auto* const scratch = reinterpret_cast<double*>(job.memory + memory.scratch);
    // Where nobody needs a step's gradient whole, each weight takes its step as soon as its
    // gradient is there.
    const bool at_once = job.kind == JobKind::kTrain && job.gradient == nullptr;
    for (uint32_t worth = 0; s < job.steps && worth < args.most_rows;) {
      const JobStep& step = job.step[s];
      const Mode mode = job.kind == JobKind::kLoss ? Mode::kNone
                        : at_once                  ? Mode::kStep
                        : first == 0               ? Mode::kWrite
                                                   : Mode::kAdd;
      const Pass pass{program,
                      job,
                      step,
                      job.kind == JobKind::kTrain ? job.weights : job.start,
                      reinterpret_cast<float*>(job.memory),
                      reinterpret_cast<float*>(job.memory + memory.gradients),
                      scratch,
                      args.pass_rows,
                      first,
                      Least(job.pass_rows, step.rows - first),
                      mode};
      Gather(team, pass);
      Forward(team, pass);
      Rate(team, pass);
      if (job.outputs != nullptr) KeepOutputs(team, pass);
      if (mode != Mode::kNone) Backward(team, pass);
      // Behind a Sync of every thread, which has read it.
      if (team.thread == 0) ++cursor.passes;
      worth += pass.rows + args.step_rows;
      first += pass.rows;
      if (first < step.rows) continue;
      if (job.kind == JobKind::kTrain && !at_once) Update(team, program, job, s, scratch);
      first = 0;
      ++s;
    }
    if (s >= job.steps && job.kind == JobKind::kTrain && job.trainable != nullptr) {
      RestoreBuffers(team, program, job);
    }
    if (team.thread == 0) {
      cursor.step = s;
      cursor.row = first;
    }
  }
}

}  // namespace macaw::training::ondevice
