#include "training/device/program_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "training/device/product_shape.h"

namespace macaw::training::ondevice {
namespace {

// The rows for which products are shaped, at least and at most.
constexpr uint32_t kFewRows = 8, kManyRows = 64;
// Floats of an example's columns at most (Op::columns), and the cost of writing and reading one.
constexpr uint64_t kMostColumns = 1 << 18, kColumnCost = 50;

}  // namespace

ProgramBuilder::ProgramBuilder(const models::ModelSpec& spec, uint32_t batch)
    : spec_(spec), rows_(batch == 0 ? kManyRows : std::clamp(batch, kFewRows, kManyRows)) {}

absl::Status ProgramBuilder::Build() {
  const std::vector<int64_t>& input = spec_.input_shape;
  const auto extent = [&](size_t axis) { return static_cast<uint64_t>(input[axis]); };
  if (input.size() == 3) {
    AddValue(extent(0), extent(1), extent(2));
  } else if (input.size() == 2) {  // a sequence of vectors
    positions_ = extent(0);
    AddValue(1, positions_, extent(1));
  } else {
    uint64_t elements = 1;
    for (size_t axis = 0; axis < input.size(); ++axis) elements *= extent(axis);
    AddValue(elements, 1, 1);
  }
  for (size_t layer = 0; layer < spec_.layers.size() && !too_large_; layer = layer_ + 1) {
    tensor_ = static_cast<uint32_t>(spec_.tensors[layer].first);
    buffer_ = static_cast<uint32_t>(spec_.buffers[layer].first);
    AddLayer(spec_.layers, layer);
  }
  // The loss does not ask whether an output is the 0 of a ReLU.
  if (values_[at_].relu != 0) AddElements(OpKind::kRelu);
  if (too_large_ || drafts_.empty() || activations_ >= uint64_t{1} << 31)
    return absl::UnimplementedError("the device trainer does not take activations of this size");
  PlaceGradients();
  return absl::OkStatus();
}

size_t ProgramBuilder::AddValue(uint64_t channels, uint64_t height, uint64_t width) {
  const uint64_t size = channels * height * width;
  too_large_ = too_large_ || size > kMostFloats;
  Value value;
  value.channels = static_cast<uint32_t>(channels);
  value.height = static_cast<uint32_t>(height);
  value.width = static_cast<uint32_t>(width);
  value.size = static_cast<uint32_t>(size);
  value.at = Keep(size);
  values_.push_back(value);
  return values_.size() - 1;
}

size_t ProgramBuilder::AddLike(size_t value) {
  const Value like = values_[value];
  return AddValue(like.channels, like.height, like.width);
}

size_t ProgramBuilder::AddVectors(uint64_t width) {
  return positions_ == 1 ? AddValue(width, 1, 1) : AddValue(1, positions_, width);
}

uint32_t ProgramBuilder::Keep(uint64_t floats) {
  const auto place = static_cast<uint32_t>(activations_);
  activations_ += floats;
  return place;
}

// Whether the layer behind the current one is a ReLU that this operation can do; never the last
// one, whose output is no layer's input.
bool ProgramBuilder::TakeRelu() {
  if (layer_ + 2 >= layers_->size() ||
      !std::holds_alternative<models::Relu>((*layers_)[layer_ + 1]))
    return false;
  ++layer_;
  return true;
}

// Leaves layer_ at the last layer that was added, since an operation may do a ReLU behind it, too.
void ProgramBuilder::AddLayer(const std::vector<models::Layer>& layers, size_t layer) {
  layers_ = &layers;
  layer_ = layer;
  std::visit([this](const auto& next) { Add(next); }, layers[layer]);
}

void ProgramBuilder::Append(OpKind kind, Op op, size_t in, size_t out, bool relu) {
  op.kind = kind;
  values_[out].relu = relu ? 1 : 0;
  Draft draft;
  draft.op = op;
  draft.in = in;
  draft.out = out;
  drafts_.push_back(draft);
  at_ = out;
}

void ProgramBuilder::AddLinear(uint64_t inputs, uint64_t outputs, uint32_t weight, bool bias,
                               bool relu) {
  Op op;
  op.weight = weight;
  op.bias = bias ? weight + 1 : kNothing;
  op.trained = bias ? 2 : 1;
  op.positions = static_cast<uint32_t>(positions_);
  const uint64_t vectors = rows_ * positions_;
  op.forward = ShapeOfProduct(vectors, outputs, inputs);
  op.backward = ShapeOfProduct(vectors, inputs, outputs);
  op.gradient = ShapeOfProduct(outputs, inputs + 1, vectors);
  const size_t in = at_;
  Append(OpKind::kLinear, op, in, AddVectors(outputs), relu);
}

void ProgramBuilder::AddAdapted(uint64_t inputs, uint64_t outputs, uint32_t weight, bool bias,
                                bool relu, const models::Adapter& adapter, uint32_t a) {
  if (adapter.rank == 0) return AddLinear(inputs, outputs, weight, bias, relu);
  const auto rank = static_cast<uint64_t>(adapter.rank);
  const size_t in = at_;
  AddLinear(inputs, outputs, weight, bias, /*relu=*/false);
  const size_t plain = at_;
  at_ = in;
  AddLinear(inputs, rank, a, /*bias=*/false, /*relu=*/false);
  AddLinear(rank, outputs, a + 1, /*bias=*/false, /*relu=*/false);
  const size_t low_rank = at_;
  at_ = plain;
  AddSum(low_rank, relu, static_cast<float>(adapter.scale));
}

// Returns its output.
size_t ProgramBuilder::AddConv(const models::Conv2d& conv, uint32_t weight, size_t in, bool relu) {
  const Value from = values_[in];
  const auto kernel = static_cast<int32_t>(conv.kernel),
             padding = static_cast<int32_t>(conv.padding);
  const auto side = [&](uint32_t extent) {
    return static_cast<uint64_t>(
        (static_cast<int64_t>(extent) + 2 * conv.padding - conv.kernel) / conv.stride + 1);
  };
  Op op;
  op.weight = weight;
  op.bias = conv.bias ? weight + 1 : kNothing;
  op.trained = conv.bias ? 2 : 1;
  op.kernel_height = op.kernel_width = static_cast<uint32_t>(kernel);
  op.stride = static_cast<uint32_t>(conv.stride);
  const size_t out = AddValue(static_cast<uint64_t>(conv.out), side(from.height), side(from.width));
  const auto plane_in = static_cast<int32_t>(from.height * from.width);
  const auto plane_out = static_cast<int32_t>(values_[out].height * values_[out].width);
  const auto width = static_cast<int32_t>(from.width);
  const auto inputs = static_cast<int32_t>(conv.in), outputs = static_cast<int32_t>(conv.out);
  op.forward_taps = static_cast<uint32_t>(taps_.size());
  for (int32_t channel = 0; channel < inputs; ++channel) {
    for (int32_t i = 0; i < kernel * kernel; ++i) {
      const int32_t y = i / kernel - padding, x = i % kernel - padding;
      taps_.push_back({.offset = channel * plane_in + y * width + x, .weight = 0, .y = y, .x = x});
    }
  }
  op.backward_taps = static_cast<uint32_t>(taps_.size());
  for (int32_t channel = 0; channel < outputs; ++channel) {
    for (int32_t i = 0; i < kernel * kernel; ++i) {
      taps_.push_back({.offset = channel * plane_out,
                       .weight = channel * inputs * kernel * kernel + i,
                       .y = padding - i / kernel,
                       .x = padding - i % kernel});
    }
  }
  const auto window = static_cast<uint64_t>(kernel) * static_cast<uint64_t>(kernel);
  const uint64_t pixels_in = rows_ * static_cast<uint64_t>(plane_in);
  const uint64_t pixels_out = rows_ * static_cast<uint64_t>(plane_out);
  const auto in_channels = static_cast<uint64_t>(inputs),
             out_channels = static_cast<uint64_t>(outputs);
  op.forward = ShapeOfProduct(out_channels, pixels_out, in_channels * window);
  op.gradient = ShapeOfProduct(out_channels, in_channels * window + 1, pixels_out);
  op.backward = ShapeOfProduct(in_channels, pixels_in, out_channels * window);
  const GemmShape by_columns = ShapeOfProduct(in_channels * window, pixels_out, out_channels);
  const uint64_t columns = in_channels * window * static_cast<uint64_t>(plane_out);
  const uint64_t cost = CostOf(by_columns, in_channels * window, pixels_out, out_channels) +
                        rows_ * columns * kColumnCost + pixels_in * in_channels * window * 10;
  if (in > 0 && window > 1 && columns <= kMostColumns &&
      cost < CostOf(op.backward, in_channels, pixels_in, out_channels * window)) {
    op.backward = by_columns;
    op.columns = Keep(columns);
  }
  Append(OpKind::kConv, op, in, out, relu);
  return out;
}

void ProgramBuilder::AddPool(OpKind kind, uint32_t height, uint32_t width, uint32_t stride) {
  Op op;
  op.kernel_height = height;
  op.kernel_width = width;
  op.stride = stride;
  op.factor = 1.0f / static_cast<float>(height * width);
  const size_t in = at_;
  const Value from = values_[in];
  const size_t out = AddValue(from.channels, (from.height - height) / stride + 1,
                              (from.width - width) / stride + 1);
  if (kind == OpKind::kMaxPool) op.kept = Keep(values_[out].size);
  Append(kind, op, in, out);
}

size_t ProgramBuilder::AddGroupNorm(uint32_t groups, uint32_t weight, size_t in, bool relu) {
  Op op;
  op.weight = weight;
  op.bias = weight + 1;
  op.trained = 2;
  op.groups = groups;
  op.kept = Keep(2 * uint64_t{groups});
  const size_t out = AddLike(in);
  scratch_ = std::max<uint64_t>(
      scratch_, uint64_t{values_[in].channels} * (2 * kMomentLanes + 2) + 2 * uint64_t{groups});
  Append(OpKind::kGroupNorm, op, in, out, relu);
  return out;
}

size_t ProgramBuilder::AddBatchNorm(int64_t channels, uint32_t weight, uint32_t buffer, size_t in,
                                    bool relu) {
  // Behind a flatten each element is a channel.
  const auto norms = static_cast<uint64_t>(channels);
  const bool flat = norms != values_[in].channels;
  Op op;
  op.weight = weight;
  op.bias = weight + 1;
  op.trained = 2;
  op.buffer = buffer;
  op.kept = Keep(2 * norms);  // only those of the first row are used
  const size_t out = flat ? AddValue(norms, 1, 1) : AddLike(in);
  scratch_least_ = std::max<uint64_t>(scratch_least_, norms * (2 * kBatchLanes + 2));
  Append(OpKind::kBatchNorm, op, in, out, relu);
  drafts_.back().flat = flat;
  return out;
}

void ProgramBuilder::AddElements(OpKind kind, Op op) {
  const size_t in = at_;
  Append(kind, op, in, AddLike(in));
}

void ProgramBuilder::AddDropout(double p) {
  if (p <= 0) return;  // nothing is drawn
  Op op;
  op.dropped = static_cast<uint32_t>(std::ldexp(p, 32));
  op.factor = static_cast<float>(1.0 / (1.0 - p));
  op.dropout_base = dropout_base_;
  dropout_base_ += values_[at_].size;
  AddElements(OpKind::kDropout, op);
}

// Adds another value, times a factor, to the current one.
void ProgramBuilder::AddSum(size_t with, bool relu, float factor) {
  const size_t in = at_;
  Op op;
  op.factor = factor;
  Append(OpKind::kAdd, op, in, AddLike(in), relu);
  drafts_.back().in2 = with;
}

void ProgramBuilder::Add(const models::BasicBlock& block) {
  const size_t in = at_;
  const auto conv = [&](int64_t from, int64_t kernel, int64_t stride, int64_t padding) {
    models::Conv2d result;
    result.in = from;
    result.out = block.out;
    result.kernel = kernel;
    result.stride = stride;
    result.padding = padding;
    result.bias = false;
    return result;
  };
  // The k-th norm. Its weight and bias follow its convolution's weight.
  const auto norm = [&](uint32_t k, size_t value, bool relu) {
    const uint32_t weight = tensor_ + 3 * k + 1;
    return block.batch_norm
               ? AddBatchNorm(block.out, weight, buffer_ + 2 * k, value, relu)
               : AddGroupNorm(static_cast<uint32_t>(block.groups), weight, value, relu);
  };
  size_t y = norm(0, AddConv(conv(block.in, 3, block.stride, 1), tensor_, in, false), true);
  y = norm(1, AddConv(conv(block.out, 3, 1, 1), tensor_ + 3, y, false), false);
  size_t skip = in;
  if (block.in != block.out || block.stride != 1) {
    skip = norm(2, AddConv(conv(block.in, 1, block.stride, 0), tensor_ + 6, in, false), false);
  }
  at_ = y;
  AddSum(skip, /*relu=*/true);
}

void ProgramBuilder::Add(const models::Residual& residual) {
  const auto* const outer = layers_;
  const size_t outer_layer = layer_, in = at_;
  const uint64_t positions = positions_;
  uint32_t tensor = tensor_, buffer = buffer_;
  for (size_t layer = 0; layer < residual.layers.size(); ++layer) {
    tensor_ = tensor;
    buffer_ = buffer;
    AddLayer(residual.layers, layer);
    // A ReLU that was taken, too, has neither.
    tensor += static_cast<uint32_t>(residual.tensors[layer].first);
    buffer += static_cast<uint32_t>(residual.tensors[layer].second);
    layer = layer_;
  }
  layers_ = outer;
  layer_ = outer_layer;
  positions_ = positions;
  AddSum(in, /*relu=*/false);
}

void ProgramBuilder::Add(const models::Conv2d& conv) { AddConv(conv, tensor_, at_, TakeRelu()); }
void ProgramBuilder::Add(const models::Linear& linear) {
  AddAdapted(static_cast<uint64_t>(linear.in), static_cast<uint64_t>(linear.out), tensor_,
             linear.bias, TakeRelu(), linear.adapter, tensor_ + (linear.bias ? 2 : 1));
}
void ProgramBuilder::Add(const models::MaxPool2d& pool) {
  const auto kernel = static_cast<uint32_t>(pool.kernel);
  AddPool(OpKind::kMaxPool, kernel, kernel, static_cast<uint32_t>(pool.stride));
}
void ProgramBuilder::Add(const models::AvgPool2d& pool) {
  const auto kernel = static_cast<uint32_t>(pool.kernel);
  AddPool(OpKind::kAvgPool, kernel, kernel, static_cast<uint32_t>(pool.stride));
}
void ProgramBuilder::Add(const models::GlobalAvgPool&) {
  AddPool(OpKind::kAvgPool, values_[at_].height, values_[at_].width, 1);
}
void ProgramBuilder::Add(const models::Flatten&) { positions_ = 1; }
void ProgramBuilder::Add(const models::Relu&) { AddElements(OpKind::kRelu); }
void ProgramBuilder::Add(const models::Tanh&) { AddElements(OpKind::kTanh); }
void ProgramBuilder::Add(const models::Sigmoid&) { AddElements(OpKind::kSigmoid); }
void ProgramBuilder::Add(const models::Gelu&) { AddElements(OpKind::kGelu); }
void ProgramBuilder::Add(const models::Dropout& dropout) { AddDropout(dropout.p); }
void ProgramBuilder::Add(const models::GroupNorm& norm) {
  AddGroupNorm(static_cast<uint32_t>(norm.groups), tensor_, at_, TakeRelu());
}
void ProgramBuilder::Add(const models::BatchNorm& norm) {
  AddBatchNorm(norm.channels, tensor_, buffer_, at_, TakeRelu());
}
void ProgramBuilder::Add(const models::LayerNorm&) { AddLayerNorm(tensor_); }

// Finds places for the gradients of values. That of a value is alive from its last user, where
// the backward pass first writes it, to the operation that made the value.
void ProgramBuilder::PlaceGradients() {
  struct Life {
    size_t value = 0, first = 0, last = 0;
  };
  std::vector<Life> lives(values_.size());
  for (size_t i = 0; i < drafts_.size(); ++i) {
    lives[drafts_[i].out] = {drafts_[i].out, i, i};
    for (const size_t in : {drafts_[i].in, drafts_[i].in2}) {
      if (in != Draft::kNone) lives[in].last = i;
    }
  }
  lives[at_].last = drafts_.size();  // the loss
  lives.erase(lives.begin());        // nobody needs that of the input
  std::ranges::stable_sort(lives, [](const Life& a, const Life& b) { return a.last > b.last; });
  std::vector<Life> placed;
  for (const Life& life : lives) {
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (const Life& other : placed) {
      if (other.first > life.last || life.first > other.last) continue;
      const Value& value = values_[other.value];
      taken.emplace_back(value.gradient, uint64_t{value.gradient} + value.size);
    }
    std::ranges::sort(taken);
    uint64_t place = 0;
    for (const auto& [begin, end] : taken) {
      if (place + values_[life.value].size <= begin) break;
      place = std::max(place, end);
    }
    values_[life.value].gradient = static_cast<uint32_t>(place);
    gradients_ = std::max(gradients_, place + values_[life.value].size);
    placed.push_back(life);
  }
}

std::vector<Op> ProgramBuilder::Ops() const {
  std::vector<bool> written(values_.size());
  std::vector<Op> ops(drafts_.size());
  for (size_t i = drafts_.size(); i-- > 0;) {
    const Draft& draft = drafts_[i];
    Op& op = ops[i] = draft.op;
    op.in = values_[draft.in];
    if (draft.flat) {
      op.in.channels = op.in.size;
      op.in.height = op.in.width = 1;
    }
    op.out = values_[draft.out];
    // A sum writes its second input's gradient first; both are one value where nothing lies
    // between.
    if (draft.in2 != Draft::kNone) {
      op.in2 = values_[draft.in2];
      op.adds2 = written[draft.in2] ? 1 : 0;
      written[draft.in2] = true;
    }
    op.adds = written[draft.in] ? 1 : 0;
    written[draft.in] = true;
    op.in_size = Divisor(op.in.size);
    op.in_plane = Divisor(op.in.height * op.in.width);
    op.in_width = Divisor(op.in.width);
    op.out_size = Divisor(op.out.size);
    op.out_plane = Divisor(op.out.height * op.out.width);
    op.out_width = Divisor(op.out.width);
    op.stride_by = Divisor(op.stride);
    const bool joins = op.kind == OpKind::kLast || op.kind == OpKind::kMean;
    op.in_vector = Divisor(op.in.size / op.positions);
    op.out_vector = Divisor(op.out.size / (joins ? 1 : op.positions));
  }
  return ops;
}

}  // namespace macaw::training::ondevice
