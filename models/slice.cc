#include "models/slice.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "models/parse.h"
#include "models/tensors.h"

namespace macaw::models {
namespace {

// What the narrower layer puts out has so many of its channels.
struct Narrow {
  const std::vector<int64_t>& input;  // the narrower layer's
  const double rate;
  const bool last;  // its outputs are the model's

  absl::StatusOr<Layer> operator()(Conv2d l) const {
    l.in = input[0];
    if (!last) l.out = ChannelsOf(l.out, rate);
    return Layer(l);
  }
  absl::StatusOr<Layer> operator()(Linear l) const {
    if (l.adapter.rank > 0)
      return absl::UnimplementedError("its adapter cannot be narrowed: take model.adapters out");
    l.in = input[0];
    if (!last) l.out = ChannelsOf(l.out, rate);
    return Layer(l);
  }
  absl::StatusOr<Layer> operator()(BatchNorm l) const {
    l.channels = input[0];
    return Layer(l);
  }
  absl::StatusOr<Layer> operator()(GroupNorm l) const {
    if (input[0] % l.groups != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "groupnorm: ", l.groups, " groups do not divide the ", input[0],
          " channels that a rate of ", rate, " leaves: take another rate or number of groups"));
    }
    l.channels = input[0];
    return Layer(l);
  }
  absl::StatusOr<Layer> operator()(const MaxPool2d& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const AvgPool2d& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const GlobalAvgPool& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Flatten& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Relu& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Tanh& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Sigmoid& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Gelu& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Dropout& l) const { return Layer(l); }
  absl::StatusOr<Layer> operator()(const Scale& l) const { return Layer(l); }

  absl::StatusOr<Layer> operator()(const BasicBlock&) const { return Refused("block"); }
  absl::StatusOr<Layer> operator()(const Residual&) const { return Refused("residual"); }
  absl::StatusOr<Layer> operator()(const Embedding&) const { return Refused("embedding"); }
  absl::StatusOr<Layer> operator()(const Lstm&) const { return Refused("lstm"); }
  absl::StatusOr<Layer> operator()(const Gru&) const { return Refused("gru"); }
  absl::StatusOr<Layer> operator()(const Positions&) const { return Refused("positions"); }
  absl::StatusOr<Layer> operator()(const LastPosition&) const { return Refused("last"); }
  absl::StatusOr<Layer> operator()(const MeanOfPositions&) const { return Refused("mean"); }
  absl::StatusOr<Layer> operator()(const LayerNorm&) const { return Refused("layernorm"); }
  absl::StatusOr<Layer> operator()(const Attention&) const { return Refused("attention"); }
  absl::StatusOr<Layer> operator()(const TransformerBlock&) const { return Refused("transformer"); }

  static absl::Status Refused(absl::string_view kind) {
    return absl::UnimplementedError(absl::StrCat(
        "\"", kind,
        "\" cannot be narrowed; layers that can: conv, linear, batchnorm, groupnorm, pools, flatten, "
        "dropout, relu, gelu, tanh, sigmoid"));
  }
};

bool HasWeights(const Layer& layer) {
  return std::holds_alternative<Conv2d>(layer) || std::holds_alternative<Linear>(layer);
}

// Layers are added one by one; sizes follow from what is there.
struct Growing {
  ModelSpec spec;
  std::vector<LayoutEntry> entries;
  size_t parameters = 0, buffers = 0;

  const std::vector<int64_t>& shape() const {
    return spec.shapes.empty() ? spec.input_shape : spec.shapes.back();
  }
  // `number` is the layer's in the names of its tensors.
  absl::Status Add(Layer layer, size_t number) {
    MACAW_ASSIGN_OR_RETURN(std::vector<int64_t> output, OutputShape(layer, shape()));
    spec.tensors.emplace_back(parameters, 0);
    spec.buffers.emplace_back(buffers, 0);
    for (TensorPlan& tensor : TensorsOf(layer)) {
      const bool trained = tensor.group == Group::kParameter;
      ++(trained ? spec.tensors : spec.buffers).back().second;
      ++(trained ? parameters : buffers);
      entries.push_back({.name = absl::StrCat(number, ".", tensor.name),
                         .shape = std::move(tensor.shape),
                         .group = tensor.group});
    }
    spec.layers.push_back(std::move(layer));
    spec.shapes.push_back(std::move(output));
    return absl::OkStatus();
  }
};

bool PassesAFactor(const Layer& layer) {
  return std::holds_alternative<Relu>(layer) || std::holds_alternative<MaxPool2d>(layer);
}

// The rows of a tensor: their number, and the numbers of each. A vector has rows of one.
std::pair<uint64_t, uint64_t> RowsOf(const LayoutEntry& entry) {
  const uint64_t rows = entry.shape.empty() ? 1 : static_cast<uint64_t>(entry.shape[0]);
  return {rows, rows == 0 ? 0 : entry.size / rows};
}

// use(place in the whole, place in the part, numbers) for each run of neighbours.
template <typename F>
void ForEachRun(const ParameterLayout& whole, const ParameterLayout& part, const F& use) {
  assert(whole.dtype() == part.dtype() && whole.entries().size() == part.entries().size());
  for (size_t e = 0; e < part.entries().size(); ++e) {
    const LayoutEntry &from = whole.entries()[e], &to = part.entries()[e];
    const uint64_t wide = RowsOf(from).second;
    const auto [rows, narrow] = RowsOf(to);
    if (wide == narrow) {
      use(from.offset, to.offset, to.size);
      continue;
    }
    for (uint64_t r = 0; r < rows; ++r) use(from.offset + r * wide, to.offset + r * narrow, narrow);
  }
}

}  // namespace

int64_t ChannelsOf(int64_t n, double rate) {
  const double channels = rate * static_cast<double>(n), nearest = std::round(channels);
  const bool is_whole = std::abs(channels - nearest) <= nearest * 0x1p-51;
  return std::max<int64_t>(1, static_cast<int64_t>(is_whole ? nearest : std::ceil(channels)));
}

size_t OutputLayerOf(const ModelSpec& spec) {
  size_t last = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (HasWeights(spec.layers[i])) last = i;
  return last;
}

absl::StatusOr<ModelSpec> SliceOf(const ModelSpec& whole, Width width) {
  if (!(width.rate > 0 && width.rate <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rate is above 0 and at most 1, not ", width.rate));
  }
  if (whole.is_script()) {
    return absl::UnimplementedError(
        "the model has no list of layers ([model] layers or a named model) that could be narrowed");
  }
  if (whole.takes_sequences()) {
    return absl::UnimplementedError(
        "the model takes sequences, and only models of images and vectors can be narrowed");
  }
  Growing growing;
  growing.spec = whole;
  growing.spec.layers.clear();
  growing.spec.shapes.clear();
  growing.spec.tensors.clear();
  growing.spec.buffers.clear();
  const size_t output = OutputLayerOf(whole);
  bool owes_scale = false;
  for (size_t i = 0; i < whole.layers.size(); ++i) {
    const Layer& layer = whole.layers[i];
    if (owes_scale && !PassesAFactor(layer)) {
      MACAW_RETURN_IF_ERROR(growing.Add(Scale{1 / width.rate}, i));
      owes_scale = false;
    }
    absl::StatusOr<Layer> narrow =
        std::visit(Narrow{growing.shape(), width.rate, i == output}, layer);
    if (!narrow.ok()) return Annotate(narrow.status(), absl::StrCat("layer ", i + 1));
    MACAW_RETURN_IF_ERROR(growing.Add(*std::move(narrow), i));
    owes_scale |= width.scaled && !width.whole() && HasWeights(layer) && i != output;
  }
  for (std::pair<size_t, size_t>& own : growing.spec.buffers) own.first += growing.parameters;
  MACAW_ASSIGN_OR_RETURN(growing.spec.layout,
                         ParameterLayout::Make(std::move(growing.entries), whole.layout->dtype()));
  return std::move(growing.spec);
}

void ExtractSlice(ConstVectorView whole, VectorView part) {
  const size_t width = SizeOf(part.dtype());
  ForEachRun(*whole.layout, *part.layout, [&](uint64_t from, uint64_t to, uint64_t count) {
    std::memcpy(part.bytes.data() + to * width, whole.bytes.data() + from * width, count * width);
  });
}

void InsertSlice(ConstVectorView part, VectorView whole) {
  const size_t width = SizeOf(part.dtype());
  ForEachRun(*whole.layout, *part.layout, [&](uint64_t to, uint64_t from, uint64_t count) {
    std::memcpy(whole.bytes.data() + to * width, part.bytes.data() + from * width, count * width);
  });
}

void FoldScales(const ModelSpec& slice, VectorView part) {
  size_t weighted = 0;  // the last layer with weights so far
  for (size_t i = 0; i < slice.layers.size(); ++i) {
    if (HasWeights(slice.layers[i])) weighted = i;
    const auto* scale = std::get_if<Scale>(&slice.layers[i]);
    if (scale == nullptr) continue;
    const auto [first, count] = slice.tensors[weighted];
    for (size_t e = first; e < first + count; ++e) {
      const LayoutEntry& entry = part.layout->entries()[e];
      DispatchDType(part.dtype(), [&]<typename T>(T) {
        for (T& value : part.As<T>().subspan(entry.offset, entry.size))
          value = static_cast<T>(double{value} * scale->factor);
      });
    }
  }
}

}  // namespace macaw::models
