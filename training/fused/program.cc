#include "training/fused/program.h"

#include <array>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "training/fused/adapted_linear.h"
#include "training/fused/conv.h"
#include "training/fused/elementwise.h"
#include "training/fused/linear.h"
#include "training/fused/pool.h"

namespace macaw::training::fused {
namespace {

constexpr size_t kMostTensors = 16;  // per block
// The convolution reads its weights again for each example. If they exceed the second-level cache,
// a tensor library, which works on parts of them, is faster.
constexpr int64_t kMostConvWeights = 1 << 18;

// Builds the chain: decides which block carries out which layers.
struct Builder {
  const models::ModelSpec& spec;
  const Isa isa;
  Shape shape;        // what the next block receives
  size_t layer = 0;   // the next one to assign
  size_t tensor = 0;  // index in the layout of the next block's first tensor
  std::vector<Program::Step> steps;
  size_t packed_size = 0;

  template <typename T>
  bool NextIs() const {
    return layer < spec.layers.size() && std::holds_alternative<T>(spec.layers[layer]);
  }
  template <typename T>
  bool Take() {  // if the next layer is a T, the current block takes it, too
    if (!NextIs<T>()) return false;
    ++layer;
    return true;
  }

  void Append(std::unique_ptr<const Block> block) {
    const std::vector<PackedTensor> tensors = block->tensors();
    const size_t size = tensors.empty() ? 0 : tensors.back().offset + tensors.back().size;
    shape = block->out();
    steps.push_back({std::move(block), packed_size, size, tensor});
    packed_size += size;
    tensor += tensors.size();
  }

  // A linear layer also takes the ReLU that follows it.
  void AppendLinear(const models::Linear& linear, size_t positions) {
    const LinearPlan plan{.in = shape,
                          .outputs = static_cast<size_t>(linear.out),
                          .positions = positions,
                          .bias = linear.bias,
                          .relu = Take<models::Relu>()};
    const auto rank = static_cast<size_t>(linear.adapter.rank);
    Append(rank == 0 ? MakeLinear(isa, plan)
                     : MakeAdaptedLinear(isa, plan, rank, linear.adapter.scale));
  }

  // A convolution also takes the ReLU and the max pool that follow it, in either order: the maximum
  // of the positive parts is the positive part of the maximum.
  void AppendConv(const models::Conv2d& conv) {
    ConvPlan plan{.in = shape,
                  .outputs = static_cast<size_t>(conv.out),
                  .kernel = static_cast<size_t>(conv.kernel),
                  .stride = static_cast<size_t>(conv.stride),
                  .padding = static_cast<size_t>(conv.padding),
                  .bias = conv.bias,
                  .relu = Take<models::Relu>()};
    if (NextIs<models::MaxPool2d>()) {
      const auto& pool = std::get<models::MaxPool2d>(spec.layers[layer]);
      const auto window = static_cast<size_t>(pool.kernel);
      if (pool.kernel == pool.stride && window <= kMaxFusedPool) {
        plan.pool = window;
        ++layer;
        if (!plan.relu) plan.relu = Take<models::Relu>();
      }
    }
    Append(MakeConv(isa, plan));
  }

  // The shape that a layer receives, of one example.
  const std::vector<int64_t>& InputOf(size_t of) const {
    return of == 0 ? spec.input_shape : spec.shapes[of - 1];
  }

  template <typename T>
  PoolPlan PoolOf(T height, T width, T stride) const {
    return {.in = shape,
            .height = static_cast<size_t>(height),
            .width = static_cast<size_t>(width),
            .stride = static_cast<size_t>(stride)};
  }

  // Assigns `spec.layers[layer]` to a block and moves `layer` past the layers it takes. False if no
  // block exists for that layer.
  bool Next() {
    const std::vector<int64_t>& input = InputOf(layer);
    const models::Layer& next = spec.layers[layer++];
    if (const auto* linear = std::get_if<models::Linear>(&next)) {
      AppendLinear(*linear, input.size() == 2 ? static_cast<size_t>(input[0]) : 1);
    } else if (const auto* conv = std::get_if<models::Conv2d>(&next)) {
      if (conv->in * conv->kernel * conv->kernel * conv->out > kMostConvWeights) return false;
      AppendConv(*conv);
    } else if (const auto* max = std::get_if<models::MaxPool2d>(&next)) {
      Append(MakeMaxPool(PoolOf(max->kernel, max->kernel, max->stride)));
    } else if (const auto* avg = std::get_if<models::AvgPool2d>(&next)) {
      Append(MakeAvgPool(PoolOf(avg->kernel, avg->kernel, avg->stride)));
    } else if (std::holds_alternative<models::GlobalAvgPool>(next)) {
      Append(MakeAvgPool(PoolOf<size_t>(shape.height, shape.width, 1)));
    } else if (std::holds_alternative<models::Relu>(next)) {
      Append(MakeElementwise(isa, Function::kRelu, shape));
    } else if (std::holds_alternative<models::Tanh>(next)) {
      Append(MakeElementwise(isa, Function::kTanh, shape));
    } else if (std::holds_alternative<models::Sigmoid>(next)) {
      Append(MakeElementwise(isa, Function::kSigmoid, shape));
    } else if (const auto* dropout = std::get_if<models::Dropout>(&next)) {
      // With p = 0 nothing is drawn.
      if (dropout->p > 0) Append(MakeDropout(dropout->p, shape));
    } else if (const auto* scale = std::get_if<models::Scale>(&next)) {
      Append(MakeScale(scale->factor, shape));
    } else if (!std::holds_alternative<models::Flatten>(next)) {
      return false;
    }
    return true;
  }
};

// A sequence is one line a position if a layer treats each position by itself, and else one vector,
// as what has other axes.
bool TreatsPositions(const models::ModelSpec& spec) {
  if (spec.input_shape.size() != 2 || spec.input_shape[0] == 1) return false;
  for (size_t i = 0; i < spec.layers.size() && (i == 0 || spec.shapes[i - 1].size() == 2); ++i) {
    if (std::holds_alternative<models::Linear>(spec.layers[i])) return true;
  }
  return false;
}

Shape ShapeOf(const models::ModelSpec& spec) {
  const std::vector<int64_t>& extents = spec.input_shape;
  if (TreatsPositions(spec)) {
    return Shape::Sequence(static_cast<size_t>(extents[0]), static_cast<size_t>(extents[1]));
  }
  if (extents.size() == 3) {
    return {.channels = static_cast<size_t>(extents[0]),
            .height = static_cast<size_t>(extents[1]),
            .width = static_cast<size_t>(extents[2])};
  }
  size_t elements = 1;
  for (const int64_t extent : extents) elements *= static_cast<size_t>(extent);
  return Shape::Flat(elements);
}

}  // namespace

absl::StatusOr<Program> Program::Compile(const models::ModelSpec& spec, Isa isa) {
  Builder builder{.spec = spec, .isa = isa, .shape = ShapeOf(spec)};
  while (builder.layer < spec.layers.size()) {
    const size_t layer = builder.layer;
    if (!builder.Next()) {
      return absl::UnimplementedError(absl::StrCat("the fused trainer has no block for layer ",
                                                   layer + 1, " of model \"", spec.name, "\""));
    }
  }
  if (builder.tensor == 0 || builder.tensor != spec.layout->entries().size()) {
    return absl::UnimplementedError(absl::StrCat("the fused trainer carries out ", builder.tensor,
                                                 " tensors of model \"", spec.name,
                                                 "\", which has ", spec.layout->entries().size()));
  }
  if (!builder.shape.InOneLine()) builder.Append(MakeFlatten(builder.shape));
  Program program;
  program.layout_ = spec.layout;
  program.steps_ = std::move(builder.steps);
  program.packed_size_ = builder.packed_size;
  return program;
}

void Program::Pack(ConstVectorView from, std::span<float> packed) const {
  const float* const values = from.As<float>().data();
  for (const Step& step : steps_) {
    std::array<const float*, kMostTensors> tensors;
    const size_t count = step.block->tensors().size();
    for (size_t i = 0; i < count; ++i) {
      tensors[i] = values + layout_->entries()[step.first_tensor + i].offset;
    }
    step.block->Pack(std::span(tensors).first(count), packed.data() + step.offset);
  }
}

void Program::Unpack(std::span<const float> packed, VectorView to) const {
  float* const values = to.As<float>().data();
  for (const Step& step : steps_) {
    std::array<float*, kMostTensors> tensors;
    const size_t count = step.block->tensors().size();
    for (size_t i = 0; i < count; ++i) {
      tensors[i] = values + layout_->entries()[step.first_tensor + i].offset;
    }
    step.block->Unpack(packed.data() + step.offset, std::span(tensors).first(count));
  }
}

uint32_t Program::TrainableTensors(size_t index, const std::vector<bool>* trainable) const {
  if (trainable == nullptr) return ~uint32_t{0};
  uint32_t tensors = 0;
  for (size_t i = 0; i < steps_[index].block->tensors().size(); ++i)
    tensors |= (*trainable)[steps_[index].first_tensor + i] ? uint32_t{1} << i : 0;
  return tensors;
}

Pieces Program::TrainablePieces(size_t index, const std::vector<bool>* trainable) const {
  const Step& step = steps_[index];
  Pieces pieces;
  const std::vector<PackedTensor> tensors = step.block->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (trainable != nullptr && !(*trainable)[step.first_tensor + i]) continue;
    const uint64_t begin = step.offset + tensors[i].offset, end = begin + tensors[i].size;
    if (!pieces.empty() && pieces.back().second == begin) {
      pieces.back().second = end;
    } else {
      pieces.emplace_back(begin, end);
    }
  }
  return pieces;
}

}  // namespace macaw::training::fused
