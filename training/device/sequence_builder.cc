#include <algorithm>
#include <cmath>

#include "training/device/product_shape.h"
#include "training/device/program_builder.h"

// The operations of layers that know positions.
namespace macaw::training::ondevice {
namespace {

// A and B, or nothing.
uint32_t TensorsOf(const models::Adapter& adapter) { return adapter.rank == 0 ? 0 : 2; }

}  // namespace

void ProgramBuilder::Add(const models::Embedding& embedding) {
  Op op;
  op.weight = tensor_;
  op.trained = 1;
  positions_ = values_[at_].size;
  op.positions = static_cast<uint32_t>(positions_);
  has_embedding_ = true;
  const size_t in = at_;
  Append(OpKind::kEmbedding, op, in, AddValue(1, positions_, static_cast<uint64_t>(embedding.out)));
}

void ProgramBuilder::Add(const models::Positions&) {
  Op op;
  op.weight = tensor_;
  op.trained = 1;
  AddElements(OpKind::kPositions, op);
}

void ProgramBuilder::AddLayerNorm(uint32_t weight) {
  Op op;
  op.weight = weight;
  op.bias = weight + 1;
  op.trained = 2;
  op.positions = static_cast<uint32_t>(positions_);
  op.kept = Keep(2 * positions_);
  const size_t in = at_;
  const uint64_t width = values_[in].size / positions_;
  scratch_ = std::max<uint64_t>(scratch_, positions_ * (2 * kMomentLanes + 2));
  scratch_least_ = std::max<uint64_t>(scratch_least_, width * 2 * kMomentLanes);
  Append(OpKind::kLayerNorm, op, in, AddLike(in));
}

void ProgramBuilder::AddOneVector(OpKind kind) {
  Op op;
  op.positions = static_cast<uint32_t>(positions_);
  const size_t in = at_;
  const uint64_t width = values_[in].size / positions_;
  positions_ = 1;
  Append(kind, op, in, AddValue(width, 1, 1));
}

void ProgramBuilder::AddRecurrent(OpKind kind, int64_t from, int64_t outputs, int64_t layers) {
  auto inputs = static_cast<uint64_t>(from);
  const auto width = static_cast<uint64_t>(outputs);
  const uint64_t gates = (kind == OpKind::kLstm ? 4 : 3) * width, vectors = rows_ * positions_;
  for (int64_t layer = 0; layer < layers; ++layer, inputs = width) {
    Op op;
    op.weight = tensor_ + 4 * static_cast<uint32_t>(layer);
    op.trained = 4;
    op.positions = static_cast<uint32_t>(positions_);
    op.forward = ShapeOfProduct(vectors, gates, inputs);
    op.backward = ShapeOfProduct(vectors, inputs, gates);
    op.gradient = ShapeOfProduct(gates, inputs + 1, vectors);
    op.step_forward = ShapeOfProduct(rows_, gates, width);
    op.step_backward = ShapeOfProduct(rows_, width, gates);
    op.step_gradient = ShapeOfProduct(gates, width + 1, vectors);
    op.kept = Keep(4 * positions_ * width);
    if (kind == OpKind::kLstm) op.cells = Keep(positions_ * width);
    op.carry = Keep((kind == OpKind::kLstm ? 2 : 3) * width);
    const size_t in = at_;
    Append(kind, op, in, AddValue(1, positions_, width));
  }
}

template <typename Layer>
void ProgramBuilder::AddAttention(const Layer& layer, double dropout, uint32_t weight,
                                  uint32_t projections) {
  const uint64_t width = values_[at_].size / positions_;
  AddAdapted(width, 3 * width, weight, /*bias=*/true, /*relu=*/false, layer.in_proj, projections);
  Op op;
  op.positions = static_cast<uint32_t>(positions_);
  op.groups = static_cast<uint32_t>(layer.heads);
  op.causal = layer.causal ? 1 : 0;
  const uint64_t scores = op.groups * positions_ * positions_;
  too_large_ = too_large_ || scores > kMostFloats;
  op.kept = Keep(scores);
  op.cells = Keep(scores);
  if (dropout > 0) {
    op.dropped = static_cast<uint32_t>(std::ldexp(dropout, 32));
    op.factor = static_cast<float>(1.0 / (1.0 - dropout));
    op.dropout_base = dropout_base_;
    dropout_base_ += scores;
  }
  const size_t in = at_;
  Append(OpKind::kAttention, op, in, AddVectors(width));
  AddAdapted(width, width, weight + 2, /*bias=*/true, /*relu=*/false, layer.out_proj,
             projections + TensorsOf(layer.in_proj));
}

void ProgramBuilder::Add(const models::TransformerBlock& block) {
  const auto width = static_cast<uint64_t>(block.width), hidden = static_cast<uint64_t>(block.ff);
  const uint32_t projections = tensor_ + 12;
  const uint32_t first = projections + TensorsOf(block.in_proj) + TensorsOf(block.out_proj);
  const size_t x = at_;
  AddLayerNorm(tensor_ + 8);
  AddAttention(block, block.dropout, tensor_, projections);
  AddDropout(block.dropout);
  AddSum(x, /*relu=*/false);
  const size_t y = at_;
  AddLayerNorm(tensor_ + 10);
  AddAdapted(width, hidden, tensor_ + 4, /*bias=*/true, /*relu=*/false, block.linear1, first);
  AddElements(OpKind::kGelu);
  AddDropout(block.dropout);
  AddAdapted(hidden, width, tensor_ + 6, /*bias=*/true, /*relu=*/false, block.linear2,
             first + TensorsOf(block.linear1));
  AddDropout(block.dropout);
  AddSum(y, /*relu=*/false);
}

void ProgramBuilder::Add(const models::LastPosition&) { AddOneVector(OpKind::kLast); }
void ProgramBuilder::Add(const models::MeanOfPositions&) { AddOneVector(OpKind::kMean); }
void ProgramBuilder::Add(const models::Lstm& lstm) {
  AddRecurrent(OpKind::kLstm, lstm.in, lstm.out, lstm.layers);
}
void ProgramBuilder::Add(const models::Gru& gru) {
  AddRecurrent(OpKind::kGru, gru.in, gru.out, gru.layers);
}
void ProgramBuilder::Add(const models::Attention& attention) {
  AddAttention(attention, /*dropout=*/0, tensor_, tensor_ + 4);
}

}  // namespace macaw::training::ondevice
