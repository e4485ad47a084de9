#pragma once

#include "device/math.h"
#include "plan/task.h"
#include "training/device/pass-inl.h"

// The losses of training::Objective and their gradients, in double. Rows are added in their order.
namespace macaw::training::ondevice {

// Indices of the sums, as in SchemaFor.
enum : uint32_t { kExamples, kLoss, kCorrect, kTruePositives, kPredictedPositives, kPositives };
constexpr uint32_t kAbsoluteError = kCorrect;

MACAW_INLINE_KERNEL double WeightOf(const ClientJob& job, int32_t label) {
  return job.class_weights == nullptr ? 1.0 : job.class_weights[label];
}

// The label of a row's output position; below 0: it has none.
MACAW_INLINE_KERNEL int32_t LabelOf(const Pass& pass, uint32_t position) {
  const uint32_t positions = pass.program.positions, row = position / positions;
  return pass.job.classes[size_t{pass.PositionOf(row)} * positions + (position - row * positions)];
}

// What an output position adds to the sums, in pass.scratch, one after the other. A row has one, if
// it is no sequence.
struct RowSums {
  double loss;
  double second;  // whether it is correct, or the absolute error
  // kCounted if it counts; binary: kPredicted if it was predicted positive, kPositive if it is.
  double flags;
};
constexpr uint32_t kPredicted = 1, kPositive = 2, kCounted = 4;

// Adds the positions' sums in their order. For one thread.
MACAW_INLINE_KERNEL void AddRows(const Pass& pass, const RowSums* rows, bool binary) {
  double* const sums = pass.job.sums;
  const double scale = pass.step.mean_rows / pass.step.divisor;
  const uint32_t count = pass.rows * pass.program.positions;
  for (uint32_t r = 0; r < count; ++r) {
    const auto flags = static_cast<uint32_t>(rows[r].flags);
    if ((flags & kCounted) == 0) continue;
    sums[kExamples] += 1;
    sums[kLoss] += rows[r].loss * scale;
    sums[kCorrect] += rows[r].second;
    if (!binary) continue;
    sums[kTruePositives] += flags == (kCounted | kPositive | kPredicted) ? 1 : 0;
    sums[kPredictedPositives] += (flags & kPredicted) != 0 ? 1 : 0;
    sums[kPositives] += (flags & kPositive) != 0 ? 1 : 0;
  }
}

// Where the gradient of the outputs goes; null: there is none.
MACAW_INLINE_KERNEL float* OutputGradientOf(const Pass& pass) {
  return pass.mode == Mode::kNone ? nullptr : pass.Gradient(pass.program.logits);
}

// Row loss: Σ_c q_c·(−log p_c) with q = (1−ε)·w_y·onehot(y) + (ε/C)·w, p = softmax(outputs).
MACAW_INLINE_KERNEL void RateClasses(const device::Team& team, const Pass& pass) {
  const Program& program = pass.program;
  const ClientJob& job = pass.job;
  const float* const z = pass.Activation(program.logits);
  float* const gradient = OutputGradientOf(pass);
  const uint32_t classes = program.outputs, positions = pass.rows * program.positions;
  const uint32_t count = positions * classes;
  // Of each position, then of each output.
  auto* const rows = reinterpret_cast<RowSums*>(pass.scratch);
  double* const best = pass.scratch + size_t{3} * positions;  // the class, then the partition
  double* const powers = best + positions;
  for (uint32_t r = team.thread; r < positions; r += team.threads) {
    uint32_t top = 0;
    for (uint32_t c = 1; c < classes; ++c) {
      if (z[r * classes + c] > z[r * classes + top]) top = c;
    }
    best[r] = top;
  }
  team.Sync();
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t r = program.classes.Quotient(i);
    const float top = z[r * classes + static_cast<uint32_t>(best[r])];
    powers[i] = device::Exp(static_cast<double>(z[i]) - static_cast<double>(top));
  }
  team.Sync();
  const double uniform = job.smoothing / static_cast<double>(classes);
  for (uint32_t r = team.thread; r < positions; r += team.threads) {
    const auto top = static_cast<uint32_t>(best[r]);
    double partition = 0;
    for (uint32_t c = 0; c < classes; ++c) partition += powers[r * classes + c];
    const double log_partition = static_cast<double>(z[r * classes + top]) + device::Log(partition);
    const int32_t label = LabelOf(pass, r);
    best[r] = partition;
    rows[r].flags = label < 0 ? 0 : kCounted;
    if (label < 0) continue;
    const auto y = static_cast<uint32_t>(label);
    double loss = (1.0 - job.smoothing) * WeightOf(job, label) *
                  (log_partition - static_cast<double>(z[r * classes + y]));
    if (uniform > 0) {
      for (uint32_t c = 0; c < classes; ++c) {
        loss += uniform * WeightOf(job, static_cast<int32_t>(c)) *
                (log_partition - static_cast<double>(z[r * classes + c]));
      }
    }
    rows[r].loss = loss;
    rows[r].second = top == y && loss == loss ? 1.0 : 0.0;
  }
  team.Sync();
  if (team.thread == 0) AddRows(pass, rows, /*binary=*/false);
  if (gradient != nullptr) {
    const double per_row = 1.0 / pass.step.divisor;
    for (uint32_t i = team.thread; i < count; i += team.threads) {
      const uint32_t r = program.classes.Quotient(i);
      const auto c = static_cast<int32_t>(i - r * classes);
      const int32_t label = LabelOf(pass, r);
      if (label < 0) {
        gradient[i] = 0;
        continue;
      }
      const double sharp = (1.0 - job.smoothing) * WeightOf(job, label);
      double q = uniform > 0 ? uniform * WeightOf(job, c) : 0.0;
      if (c == label) q += sharp;
      const double mass = sharp + uniform * job.weight_sum;  // Σ_c q_c
      gradient[i] = static_cast<float>((mass * (powers[i] / best[r]) - q) * per_row);
    }
  }
  team.Sync();
}

// Row loss: w_y·(log(1 + e^z) − q·z) with q = y·(1−ε) + ε/2.
MACAW_INLINE_KERNEL void RateBinary(const device::Team& team, const Pass& pass) {
  const ClientJob& job = pass.job;
  const float* const outputs = pass.Activation(pass.program.logits);
  float* const gradient = OutputGradientOf(pass);
  auto* const rows = reinterpret_cast<RowSums*>(pass.scratch);
  for (uint32_t r = team.thread; r < pass.rows; r += team.threads) {
    const double z = outputs[r];
    const int32_t label = job.classes[pass.PositionOf(r)];
    const bool positive = label == 1, predicted = z > 0;
    const double weight = WeightOf(job, label);
    const double q = (positive ? 1.0 - job.smoothing : 0.0) + 0.5 * job.smoothing;
    const double tail = device::Exp(z < 0 ? z : -z);  // never overflows
    rows[r].loss = weight * ((z < 0 ? 0.0 : z) - q * z + device::Log1p(tail));
    rows[r].second = predicted == positive && z == z ? 1.0 : 0.0;
    rows[r].flags = kCounted + (predicted ? kPredicted : 0) + (positive ? kPositive : 0);
    if (gradient == nullptr) continue;
    const double p = (z >= 0 ? 1.0 : tail) / (1.0 + tail);
    gradient[r] = static_cast<float>(weight * (p - q) / pass.step.divisor);
  }
  team.Sync();
  if (team.thread == 0) AddRows(pass, rows, /*binary=*/true);
  team.Sync();
}

// Row loss: the square of the error.
MACAW_INLINE_KERNEL void RateRegression(const device::Team& team, const Pass& pass) {
  const float* const outputs = pass.Activation(pass.program.logits);
  float* const gradient = OutputGradientOf(pass);
  auto* const rows = reinterpret_cast<RowSums*>(pass.scratch);
  for (uint32_t r = team.thread; r < pass.rows; r += team.threads) {
    const double error =
        static_cast<double>(outputs[r]) - static_cast<double>(pass.job.targets[pass.PositionOf(r)]);
    rows[r].loss = error * error;
    rows[r].second = error < 0 ? -error : error;
    rows[r].flags = kCounted;
    if (gradient != nullptr) {
      gradient[r] = static_cast<float>(2.0 * error / pass.step.divisor);
    }
  }
  team.Sync();
  if (team.thread == 0) AddRows(pass, rows, /*binary=*/false);
  team.Sync();
}

MACAW_INLINE_KERNEL void Rate(const device::Team& team, const Pass& pass) {
  switch (static_cast<TaskKind>(pass.program.task)) {
    case TaskKind::kBinary:
      return RateBinary(team, pass);
    case TaskKind::kRegression:
      return RateRegression(team, pass);
    default:
      return RateClasses(team, pass);
  }
}

}  // namespace macaw::training::ondevice
