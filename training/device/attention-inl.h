#pragma once

#include "device/math.h"
#include "training/device/pass-inl.h"

// Multi-head self-attention (Vaswani et al., 2017) between the linear layers around it: from
// queries, keys and values, [positions][3][heads][width of a head], to what the heads see,
// [positions][heads][width of a head]. Kept: the attention's weights, [heads][positions]
// [positions], and a second such matrix: forward what dropout has left of them, back their
// gradients. Each element has one thread. Each function leaves the team in step.
namespace macaw::training::ondevice {

struct AttentionShape {
  uint32_t heads, positions, depth, width;  // width = heads · depth
  uint32_t per_row;                         // weights

  MACAW_INLINE_KERNEL explicit AttentionShape(const Op& op)
      : heads(op.groups),
        positions(op.positions),
        depth(op.out_vector.value / op.groups),
        width(op.out_vector.value),
        per_row(op.groups * op.positions * op.positions) {}

  // The head's part of position t's query (0), key (1) or value (2).
  MACAW_INLINE_KERNEL size_t Place(uint32_t row, uint32_t t, uint32_t what, uint32_t head) const {
    return size_t{row * positions + t} * (3 * width) + what * width + head * depth;
  }
  // Of what the head sees.
  MACAW_INLINE_KERNEL size_t OutPlace(uint32_t row, uint32_t t, uint32_t head) const {
    return size_t{row * positions + t} * width + head * depth;
  }
  // The weights of position t: its row's, [positions].
  MACAW_INLINE_KERNEL size_t Weights(uint32_t row, uint32_t head, uint32_t t) const {
    return (size_t{row * heads + head} * positions + t) * positions;
  }
  // The positions that position t sees: the first so many. Padding lies behind all positions in
  // use, so a causal position does not see any.
  MACAW_INLINE_KERNEL uint32_t Seen(const Pass& pass, const Op& op, uint32_t row,
                                    uint32_t t) const {
    return op.causal != 0 ? t + 1 : pass.LengthOf(row, positions);
  }
};

MACAW_INLINE_KERNEL float Dot(const float* a, const float* b, uint32_t count) {
  float sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum = device::Fma(a[i], b[i], sum);
  return sum;
}

// The softmax of a position's scores, in place; 0 for positions that it does not see.
MACAW_INLINE_KERNEL void Softmax(float* scores, uint32_t seen, uint32_t positions) {
  float top = scores[0];
  for (uint32_t i = 1; i < seen; ++i) top = scores[i] > top ? scores[i] : top;
  float sum = 0;
  for (uint32_t i = 0; i < seen; ++i) {
    scores[i] = device::Exp(scores[i] - top);
    sum += scores[i];
  }
  for (uint32_t i = 0; i < positions; ++i) scores[i] = i < seen ? scores[i] / sum : 0.0f;
}

MACAW_INLINE_KERNEL void AttentionForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const AttentionShape shape(op);
  const float* const in = pass.Activation(op.in);
  float* const out = pass.Activation(op.out);
  float* const weights = pass.Kept(op.kept);
  float* const left = pass.Kept(op.cells);
  const uint32_t positions = shape.positions, lines = pass.rows * shape.heads * positions;
  const float scale = 1.0f / device::Sqrt(static_cast<float>(shape.depth));
  for (uint32_t i = team.thread; i < lines * positions; i += team.threads) {
    const uint32_t line = i / positions, key = i - line * positions;
    const uint32_t of_head = line / positions, t = line - of_head * positions;
    const uint32_t row = of_head / shape.heads, head = of_head - row * shape.heads;
    if (key >= shape.Seen(pass, op, row, t)) continue;
    weights[i] = scale * Dot(in + shape.Place(row, t, 0, head), in + shape.Place(row, key, 1, head),
                             shape.depth);
  }
  team.Sync();
  for (uint32_t line = team.thread; line < lines; line += team.threads) {
    const uint32_t of_head = line / positions, t = line - of_head * positions;
    const uint32_t seen = shape.Seen(pass, op, of_head / shape.heads, t);
    Softmax(weights + size_t{line} * positions, seen, positions);
  }
  team.Sync();
  for (uint32_t i = team.thread; i < lines * positions; i += team.threads) {
    left[i] = op.dropped == 0 ? weights[i] : weights[i] * DropoutFactor(pass, op, shape.per_row, i);
  }
  team.Sync();
  const uint32_t count = pass.rows * op.out.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t vector = op.out_vector.Quotient(i), column = i - vector * shape.width;
    const uint32_t row = vector / positions, t = vector - row * positions;
    const uint32_t head = column / shape.depth;
    const float* const line = left + shape.Weights(row, head, t);
    const float* const value = in + shape.Place(row, 0, 2, 0) + column;
    const uint32_t seen = shape.Seen(pass, op, row, t);
    float sum = 0;
    for (uint32_t key = 0; key < seen; ++key) {
      sum = device::Fma(line[key], value[size_t{key} * (3 * shape.width)], sum);
    }
    out[i] = sum;
  }
  team.Sync();
}

// The gradients of queries (what = 0), keys (1) and values (2), given those of the scores.
MACAW_INLINE_KERNEL float AttentionInputGradient(const Pass& pass, const Op& op,
                                                 const AttentionShape& shape, uint32_t row,
                                                 uint32_t t, uint32_t what, uint32_t column) {
  const float* const in = pass.Activation(op.in);
  const float* const d_scores = pass.Kept(op.cells);
  const uint32_t head = column / shape.depth, stride = 3 * shape.width;
  const float scale = 1.0f / device::Sqrt(static_cast<float>(shape.depth));
  float sum = 0;
  if (what == 0) {
    const float* const line = d_scores + shape.Weights(row, head, t);
    const float* const key = in + shape.Place(row, 0, 1, 0) + column;
    const uint32_t seen = shape.Seen(pass, op, row, t);
    for (uint32_t k = 0; k < seen; ++k) sum = device::Fma(line[k], key[size_t{k} * stride], sum);
    return scale * sum;
  }
  if (what == 1) {
    const float* const at = d_scores + shape.Weights(row, head, 0) + t;
    const float* const query = in + shape.Place(row, 0, 0, 0) + column;
    for (uint32_t q = op.causal != 0 ? t : 0; q < shape.positions; ++q) {
      sum = device::Fma(at[size_t{q} * shape.positions], query[size_t{q} * stride], sum);
    }
    return scale * sum;
  }
  const float* const weights = pass.Kept(op.kept);
  const float* const d_out = pass.Gradient(op.out) + shape.OutPlace(row, 0, 0) + column;
  for (uint32_t q = op.causal != 0 ? t : 0; q < shape.positions; ++q) {
    const auto at = static_cast<uint32_t>(shape.Weights(row, head, q)) + t;
    const float left =
        op.dropped == 0 ? weights[at] : weights[at] * DropoutFactor(pass, op, shape.per_row, at);
    sum = device::Fma(left, d_out[size_t{q} * shape.width], sum);
  }
  return sum;
}

MACAW_INLINE_KERNEL void AttentionBackward(const device::Team& team, const Pass& pass,
                                           const Op& op) {
  const AttentionShape shape(op);
  const float* const in = pass.Activation(op.in);
  const float* const d_out = pass.Gradient(op.out);
  const float* const weights = pass.Kept(op.kept);
  float* const d_scores = pass.Kept(op.cells);
  const uint32_t positions = shape.positions, lines = pass.rows * shape.heads * positions;
  // Of the weights,
  for (uint32_t i = team.thread; i < lines * positions; i += team.threads) {
    const uint32_t line = i / positions, key = i - line * positions;
    const uint32_t of_head = line / positions, t = line - of_head * positions;
    const uint32_t row = of_head / shape.heads, head = of_head - row * shape.heads;
    float d = 0;
    if (key < shape.Seen(pass, op, row, t)) {
      d = Dot(d_out + shape.OutPlace(row, t, head), in + shape.Place(row, key, 2, head),
              shape.depth);
      if (op.dropped != 0) d *= DropoutFactor(pass, op, shape.per_row, i);
    }
    d_scores[i] = d;
  }
  team.Sync();
  // and so of the scores.
  for (uint32_t line = team.thread; line < lines; line += team.threads) {
    const float* const w = weights + size_t{line} * positions;
    float* const d = d_scores + size_t{line} * positions;
    const float mean = Dot(w, d, positions);
    for (uint32_t key = 0; key < positions; ++key) d[key] = w[key] * (d[key] - mean);
  }
  team.Sync();
  const InputSink sink(pass, op.in, op.adds);
  const uint32_t count = pass.rows * op.in.size;
  for (uint32_t i = team.thread; i < count; i += team.threads) {
    const uint32_t vector = op.in_vector.Quotient(i), element = i - vector * (3 * shape.width);
    const uint32_t row = vector / positions, t = vector - row * positions;
    const uint32_t what = element / shape.width;
    sink.Put(i,
             AttentionInputGradient(pass, op, shape, row, t, what, element - what * shape.width));
  }
  team.Sync();
}

}  // namespace macaw::training::ondevice
