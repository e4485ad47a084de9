#include "training/device/program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace macaw::training::ondevice {
namespace {

// The rows for which products are shaped, at least and at most.
constexpr uint32_t kFewRows = 8, kManyRows = 64;
// Floats of an example's columns at most (Op::columns), and the cost of writing and reading one.
constexpr uint64_t kMostColumns = 1 << 18, kColumnCost = 50;
// Floats of a pass's activations and their gradients (512 MiB).
constexpr uint64_t kMostPassFloats = uint64_t{1} << 27;

uint64_t Tiles(uint64_t count, uint64_t tile) { return (count + tile - 1) / tile; }

// The instructions of 256 threads, roughly: 18 for the products of a 4 × 4 part, 20 for an element
// of a tile, 200 for the wait for a tile of shared memory, 100 at the end of a tile.
uint64_t CostOf(const GemmShape& shape, uint64_t m, uint64_t n, uint64_t k) {
  const uint64_t tile_m = uint64_t{4} << shape.rows, tile_n = uint64_t{4} << shape.columns;
  const uint64_t products = k * (uint64_t{18 * 256} >> shape.lanes);
  const uint64_t loads = k * 20 * (std::min(tile_m, m) + std::min(tile_n, n));
  const uint64_t waits = Tiles(k, shape.depth) * 200 * 256 + 100 * 256;
  return Tiles(m, tile_m) * Tiles(n, tile_n) * (products + loads + waits);
}

// An operation, with its values by number.
struct Draft {
  Op op;
  size_t in = 0, in2 = kNone, out = 0;
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
};

struct Builder {
  Builder(const models::ModelSpec& of, uint32_t batch)
      : spec(of), rows(batch == 0 ? kManyRows : std::clamp(batch, kFewRows, kManyRows)) {}

  const models::ModelSpec& spec;
  const uint64_t rows;        // of a batch, roughly
  std::vector<Value> values;  // the first one is the input
  std::vector<Draft> drafts;
  std::vector<Tap> taps;
  uint64_t dropout_base = 0;
  uint64_t activations = 0;  // floats per row
  uint64_t scratch = 0;      // doubles per row
  size_t at = 0;             // the value that the next layer receives
  size_t layer = 0;
  uint32_t tensor = 0;  // of the next layer

  size_t AddValue(uint32_t channels, uint32_t height, uint32_t width) {
    Value value;
    value.channels = channels;
    value.height = height;
    value.width = width;
    value.size = channels * height * width;
    value.at = static_cast<uint32_t>(activations);
    activations += value.size;
    values.push_back(value);
    return values.size() - 1;
  }
  uint32_t Keep(uint64_t floats) {
    const auto place = static_cast<uint32_t>(activations);
    activations += floats;
    return place;
  }

  // Whether the layer behind the current one is a ReLU that this operation can do; never the last
  // one, whose output is no layer's input.
  bool TakeRelu() {
    if (layer + 2 >= spec.layers.size() ||
        !std::holds_alternative<models::Relu>(spec.layers[layer + 1])) {
      return false;
    }
    ++layer;
    return true;
  }

  void Append(OpKind kind, Op op, size_t in, size_t out, bool relu = false) {
    op.kind = kind;
    values[out].relu = relu ? 1 : 0;
    Draft draft;
    draft.op = op;
    draft.in = in;
    draft.out = out;
    drafts.push_back(draft);
    at = out;
  }

  void AddLinear(const models::Linear& linear) {
    Op op;
    op.weight = tensor;
    op.bias = linear.bias ? tensor + 1 : kNothing;
    const auto inputs = static_cast<uint64_t>(linear.in),
               outputs = static_cast<uint64_t>(linear.out);
    op.forward = ShapeOfProduct(rows, outputs, inputs);
    op.backward = ShapeOfProduct(rows, inputs, outputs);
    op.gradient = ShapeOfProduct(outputs, inputs + 1, rows);
    const size_t in = at;
    const size_t out = AddValue(static_cast<uint32_t>(linear.out), 1, 1);
    Append(OpKind::kLinear, op, in, out, TakeRelu());
  }

  // Returns its output.
  size_t AddConv(const models::Conv2d& conv, uint32_t weight, size_t in, bool relu) {
    const Value from = values[in];
    const auto kernel = static_cast<int32_t>(conv.kernel),
               padding = static_cast<int32_t>(conv.padding);
    const auto side = [&](uint32_t extent) {
      return static_cast<uint32_t>(
          (static_cast<int64_t>(extent) + 2 * conv.padding - conv.kernel) / conv.stride + 1);
    };
    Op op;
    op.weight = weight;
    op.bias = conv.bias ? weight + 1 : kNothing;
    op.kernel_height = op.kernel_width = static_cast<uint32_t>(kernel);
    op.stride = static_cast<uint32_t>(conv.stride);
    const size_t out =
        AddValue(static_cast<uint32_t>(conv.out), side(from.height), side(from.width));
    const auto plane_in = static_cast<int32_t>(from.height * from.width);
    const auto plane_out = static_cast<int32_t>(values[out].height * values[out].width);
    const auto width = static_cast<int32_t>(from.width);
    const auto inputs = static_cast<int32_t>(conv.in), outputs = static_cast<int32_t>(conv.out);
    op.forward_taps = static_cast<uint32_t>(taps.size());
    for (int32_t channel = 0; channel < inputs; ++channel) {
      for (int32_t i = 0; i < kernel * kernel; ++i) {
        const int32_t y = i / kernel - padding, x = i % kernel - padding;
        taps.push_back({.offset = channel * plane_in + y * width + x, .weight = 0, .y = y, .x = x});
      }
    }
    op.backward_taps = static_cast<uint32_t>(taps.size());
    for (int32_t channel = 0; channel < outputs; ++channel) {
      for (int32_t i = 0; i < kernel * kernel; ++i) {
        taps.push_back({.offset = channel * plane_out,
                        .weight = channel * inputs * kernel * kernel + i,
                        .y = padding - i / kernel,
                        .x = padding - i % kernel});
      }
    }
    const auto window = static_cast<uint64_t>(kernel) * static_cast<uint64_t>(kernel);
    const uint64_t pixels_in = rows * static_cast<uint64_t>(plane_in);
    const uint64_t pixels_out = rows * static_cast<uint64_t>(plane_out);
    const auto in_channels = static_cast<uint64_t>(inputs),
               out_channels = static_cast<uint64_t>(outputs);
    op.forward = ShapeOfProduct(out_channels, pixels_out, in_channels * window);
    op.gradient = ShapeOfProduct(out_channels, in_channels * window + 1, pixels_out);
    op.backward = ShapeOfProduct(in_channels, pixels_in, out_channels * window);
    const GemmShape by_columns = ShapeOfProduct(in_channels * window, pixels_out, out_channels);
    const uint64_t columns = in_channels * window * static_cast<uint64_t>(plane_out);
    const uint64_t cost = CostOf(by_columns, in_channels * window, pixels_out, out_channels) +
                          rows * columns * kColumnCost + pixels_in * in_channels * window * 10;
    if (in > 0 && window > 1 && columns <= kMostColumns &&
        cost < CostOf(op.backward, in_channels, pixels_in, out_channels * window)) {
      op.backward = by_columns;
      op.columns = Keep(columns);
    }
    Append(OpKind::kConv, op, in, out, relu);
    return out;
  }

  void AddPool(OpKind kind, uint32_t height, uint32_t width, uint32_t stride) {
    Op op;
    op.kernel_height = height;
    op.kernel_width = width;
    op.stride = stride;
    op.factor = 1.0f / static_cast<float>(height * width);
    const size_t in = at;
    const Value from = values[in];
    const size_t out = AddValue(from.channels, (from.height - height) / stride + 1,
                                (from.width - width) / stride + 1);
    if (kind == OpKind::kMaxPool) op.kept = Keep(values[out].size);
    Append(kind, op, in, out);
  }

  size_t AddNorm(uint32_t groups, uint32_t weight, size_t in, bool relu) {
    Op op;
    op.weight = weight;
    op.bias = weight + 1;
    op.groups = groups;
    op.kept = Keep(2 * groups);
    const Value from = values[in];
    const size_t out = AddValue(from.channels, from.height, from.width);
    scratch =
        std::max<uint64_t>(scratch, uint64_t{from.channels} * (2 * kMomentLanes + 2) + 2 * groups);
    Append(OpKind::kGroupNorm, op, in, out, relu);
    return out;
  }

  void AddElements(OpKind kind, Op op = {}) {
    const size_t in = at;
    const Value from = values[in];
    Append(kind, op, in, AddValue(from.channels, from.height, from.width));
  }

  void AddBlock(const models::BasicBlock& block) {
    const size_t in = at;
    const auto groups = static_cast<uint32_t>(block.groups);
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
    size_t y = AddConv(conv(block.in, 3, block.stride, 1), tensor, in, false);
    y = AddNorm(groups, tensor + 1, y, true);
    y = AddConv(conv(block.out, 3, 1, 1), tensor + 3, y, false);
    y = AddNorm(groups, tensor + 4, y, false);
    size_t skip = in;
    if (block.in != block.out || block.stride != 1) {
      skip = AddConv(conv(block.in, 1, block.stride, 0), tensor + 6, in, false);
      skip = AddNorm(groups, tensor + 7, skip, false);
    }
    const Value from = values[y];
    const size_t out = AddValue(from.channels, from.height, from.width);
    Append(OpKind::kAdd, {}, y, out, /*relu=*/true);
    drafts.back().in2 = skip;
  }

  // False if there is no operation for the layer.
  bool Add(const models::Layer& next) {
    if (const auto* linear = std::get_if<models::Linear>(&next)) {
      AddLinear(*linear);
    } else if (const auto* conv = std::get_if<models::Conv2d>(&next)) {
      AddConv(*conv, tensor, at, TakeRelu());
    } else if (const auto* max = std::get_if<models::MaxPool2d>(&next)) {
      const auto kernel = static_cast<uint32_t>(max->kernel);
      AddPool(OpKind::kMaxPool, kernel, kernel, static_cast<uint32_t>(max->stride));
    } else if (const auto* avg = std::get_if<models::AvgPool2d>(&next)) {
      const auto kernel = static_cast<uint32_t>(avg->kernel);
      AddPool(OpKind::kAvgPool, kernel, kernel, static_cast<uint32_t>(avg->stride));
    } else if (std::holds_alternative<models::GlobalAvgPool>(next)) {
      AddPool(OpKind::kAvgPool, values[at].height, values[at].width, 1);
    } else if (std::holds_alternative<models::Relu>(next)) {
      AddElements(OpKind::kRelu);
    } else if (std::holds_alternative<models::Tanh>(next)) {
      AddElements(OpKind::kTanh);
    } else if (std::holds_alternative<models::Sigmoid>(next)) {
      AddElements(OpKind::kSigmoid);
    } else if (const auto* dropout = std::get_if<models::Dropout>(&next)) {
      if (dropout->p <= 0) return true;  // nothing is drawn
      Op op;
      op.dropped = static_cast<uint32_t>(std::ldexp(dropout->p, 32));
      op.factor = static_cast<float>(1.0 / (1.0 - dropout->p));
      op.dropout_base = dropout_base;
      dropout_base += values[at].size;
      AddElements(OpKind::kDropout, op);
    } else if (const auto* norm = std::get_if<models::GroupNorm>(&next)) {
      AddNorm(static_cast<uint32_t>(norm->groups), tensor, at, TakeRelu());
    } else if (const auto* block = std::get_if<models::BasicBlock>(&next);
               block != nullptr && !block->batch_norm) {
      AddBlock(*block);
    } else if (!std::holds_alternative<models::Flatten>(next)) {
      return false;
    }
    return true;
  }

  // Finds places for the gradients of values. That of a value is alive from its last user, where
  // the backward pass first writes it, to the operation that made the value.
  uint64_t PlaceGradients() {
    struct Life {
      size_t value = 0, first = 0, last = 0;
    };
    std::vector<Life> lives(values.size());
    for (size_t i = 0; i < drafts.size(); ++i) {
      lives[drafts[i].out] = {drafts[i].out, i, i};
      for (const size_t in : {drafts[i].in, drafts[i].in2}) {
        if (in != Draft::kNone) lives[in].last = i;
      }
    }
    lives[at].last = drafts.size();  // the loss
    lives.erase(lives.begin());      // nobody needs that of the input
    std::ranges::stable_sort(lives, [](const Life& a, const Life& b) { return a.last > b.last; });
    uint64_t total = 0;
    std::vector<Life> placed;
    for (const Life& life : lives) {
      std::vector<std::pair<uint64_t, uint64_t>> taken;
      for (const Life& other : placed) {
        if (other.first > life.last || life.first > other.last) continue;
        const Value& value = values[other.value];
        taken.emplace_back(value.gradient, uint64_t{value.gradient} + value.size);
      }
      std::ranges::sort(taken);
      uint64_t place = 0;
      for (const auto& [begin, end] : taken) {
        if (place + values[life.value].size <= begin) break;
        place = std::max(place, end);
      }
      values[life.value].gradient = static_cast<uint32_t>(place);
      total = std::max(total, place + values[life.value].size);
      placed.push_back(life);
    }
    return total;
  }

  std::vector<Op> Ops() const {
    std::vector<bool> written(values.size());
    std::vector<Op> ops(drafts.size());
    for (size_t i = drafts.size(); i-- > 0;) {
      const Draft& draft = drafts[i];
      Op& op = ops[i] = draft.op;
      op.in = values[draft.in];
      op.out = values[draft.out];
      op.adds = written[draft.in] ? 1 : 0;
      written[draft.in] = true;
      if (draft.in2 != Draft::kNone) {
        op.in2 = values[draft.in2];
        op.adds2 = written[draft.in2] ? 1 : 0;
        written[draft.in2] = true;
      }
      op.in_size = Divisor(op.in.size);
      op.in_plane = Divisor(op.in.height * op.in.width);
      op.in_width = Divisor(op.in.width);
      op.out_size = Divisor(op.out.size);
      op.out_plane = Divisor(op.out.height * op.out.width);
      op.out_width = Divisor(op.out.width);
      op.stride_by = Divisor(op.stride);
    }
    return ops;
  }
};

}  // namespace

GemmShape ShapeOfProduct(uint64_t m, uint64_t n, uint64_t k) {
  GemmShape best;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t rows = 0; rows <= 4; ++rows) {
    for (uint32_t columns = 0; columns <= 7 && rows + columns <= 8; ++columns) {
      GemmShape shape;
      shape.rows = rows;
      shape.columns = columns;
      while (shape.lanes < 5 && rows + columns + shape.lanes < 8 &&
             uint64_t{32} << shape.lanes <= k) {
        ++shape.lanes;
      }
      const uint64_t tile_m = uint64_t{4} << rows, tile_n = uint64_t{4} << columns;
      const uint64_t unit = std::max<uint64_t>(16, uint64_t{1} << shape.lanes);
      const uint64_t depth = std::min<uint64_t>(256, kTileFloats / (tile_m + tile_n + 8));
      shape.depth = static_cast<uint32_t>(depth / unit * unit);
      const uint64_t cost = CostOf(shape, m, n, k);
      if (cost >= least) continue;
      least = cost;
      best = shape;
    }
  }
  return best;
}

absl::StatusOr<CompiledModel> CompiledModel::Compile(const models::ModelSpec& spec,
                                                     uint32_t batch) {
  const auto unimplemented = [&](absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat("the device trainer ", what));
  };
  if (spec.is_script()) return unimplemented("does not take scripted modules");
  if (spec.has_buffers()) return unimplemented("has no batch norm");
  Builder builder(spec, batch);
  uint64_t elements = 1;
  for (const int64_t extent : spec.input_shape) elements *= static_cast<uint64_t>(extent);
  constexpr uint64_t kMost = uint64_t{1} << 24;  // floats of an example between two layers
  if (elements > kMost || spec.layout->size() >= uint64_t{1} << 31) {
    return unimplemented("does not take models or examples of this size");
  }
  if (spec.input_shape.size() == 3) {
    builder.AddValue(static_cast<uint32_t>(spec.input_shape[0]),
                     static_cast<uint32_t>(spec.input_shape[1]),
                     static_cast<uint32_t>(spec.input_shape[2]));
  } else {
    builder.AddValue(static_cast<uint32_t>(elements), 1, 1);
  }
  for (; builder.layer < spec.layers.size(); ++builder.layer) {
    const size_t layer = builder.layer;
    uint64_t size = 1;
    for (const int64_t extent : spec.shapes[layer]) size *= static_cast<uint64_t>(extent);
    if (size > kMost) return unimplemented("does not take activations of this size");
    builder.tensor = static_cast<uint32_t>(spec.tensors[layer].first);
    if (!builder.Add(spec.layers[layer])) {
      return unimplemented(
          absl::StrCat("has no operation for layer ", layer + 1, " of model \"", spec.name, "\""));
    }
  }
  // The loss does not ask whether an output is the 0 of a ReLU.
  if (builder.values[builder.at].relu != 0) builder.AddElements(OpKind::kRelu);
  if (builder.drafts.empty() || builder.activations >= uint64_t{1} << 31) {
    return unimplemented("does not take activations of this size");
  }
  CompiledModel model;
  Program& program = model.program;
  program.gradient_size = static_cast<uint32_t>(builder.PlaceGradients());
  model.ops = builder.Ops();
  model.taps = std::move(builder.taps);
  for (const LayoutEntry& entry : spec.layout->entries()) {
    model.tensors.push_back(
        {.offset = static_cast<uint32_t>(entry.offset), .size = static_cast<uint32_t>(entry.size)});
  }
  model.has_dropout = builder.dropout_base > 0;
  program.op_count = static_cast<uint32_t>(model.ops.size());
  program.tensor_count = static_cast<uint32_t>(model.tensors.size());
  program.vector_size = static_cast<uint32_t>(spec.layout->size());
  program.activation_size = static_cast<uint32_t>(builder.activations);
  program.outputs = static_cast<uint32_t>(spec.outputs);
  // Of the loss: three numbers, the partition, and a power for each output.
  program.scratch_size =
      static_cast<uint32_t>(std::max<uint64_t>(builder.scratch, program.outputs + 4));
  program.input = builder.values.front();
  program.logits = builder.values[builder.at];
  program.classes = Divisor(program.outputs);
  const uint64_t floats =
      builder.activations + program.gradient_size + 2 * uint64_t{program.scratch_size};
  model.pass_rows =
      static_cast<uint32_t>(std::clamp<uint64_t>(kMostPassFloats / floats, 1, kPassRows));
  return model;
}

uint32_t CompiledModel::Lowest(const std::vector<bool>* trainable) const {
  const auto trains = [&](uint32_t tensor) {
    return tensor != kNothing && (trainable == nullptr || (*trainable)[tensor]);
  };
  const auto lowest =
      std::ranges::find_if(ops, [&](const Op& op) { return trains(op.weight) || trains(op.bias); });
  return static_cast<uint32_t>(lowest - ops.begin());
}

}  // namespace macaw::training::ondevice
