#include "models/network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "models/dropout_mask.h"
#include "models/recompute.h"
#include "models/script_module.h"
#include "models/segments.h"

namespace macaw::models {

using at::Tensor;
using Tensors = std::span<const Tensor>;

// What is the same for all layers of a pass.
struct NetworkPass {
  Tensors all;  // parameters, then buffers
  RandomStream* dropout;
  Statistics statistics;
  Tensor lengths;  // [n]; undefined: all positions are in use
};

namespace {

constexpr double kNormEpsilon = 1e-5;  // PyTorch's defaults
constexpr double kNormMomentum = 0.1;

Tensor Conv(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride,
            int64_t padding) {
  return at::conv2d(x, weight, bias, at::IntArrayRef(stride), at::IntArrayRef(padding));
}

Tensor Norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias) {
  return at::group_norm(x, groups, weight, bias, kNormEpsilon, /*cudnn_enabled=*/false);
}

struct Apply {
  const Tensor& x;
  Tensors own;      // the layer's parameters
  Tensors buffers;  // the layer's buffers
  const NetworkPass& pass;
  bool in_place_relu = false;

  Tensor operator()(const Conv2d& l) const {
    return Conv(x, own[0], l.bias ? own[1] : Tensor(), l.stride, l.padding);
  }
  Tensor operator()(const Linear& l) const {
    const size_t weights = l.bias ? 2 : 1;
    return Adapted(x, own[0], l.bias ? own[1] : Tensor(), l.adapter, own.subspan(weights));
  }
  Tensor operator()(const MaxPool2d& l) const { return at::max_pool2d(x, l.kernel, l.stride); }
  Tensor operator()(const AvgPool2d& l) const { return at::avg_pool2d(x, l.kernel, l.stride); }
  Tensor operator()(const GlobalAvgPool&) const { return at::adaptive_avg_pool2d(x, {1, 1}); }
  Tensor operator()(const Flatten&) const { return at::flatten(x, 1); }
  Tensor operator()(const Relu&) const {
    Tensor input = x;
    return in_place_relu ? at::relu_(input) : at::relu(input);
  }
  Tensor operator()(const Tanh&) const { return at::tanh(x); }
  Tensor operator()(const Sigmoid&) const { return at::sigmoid(x); }
  Tensor operator()(const Dropout& l) const { return Dropped(x, l.p); }
  Tensor operator()(const GroupNorm& l) const { return Norm(x, l.groups, own[0], own[1]); }
  Tensor operator()(const models::BatchNorm&) const { return BatchNorm(x, own[0], own[1], 0); }
  Tensor operator()(const BasicBlock& l) const {
    // The block's k-th norm. Its weight and bias follow its convolution's weight.
    const auto norm = [&](const Tensor& y, size_t k) {
      const Tensor &weight = own[3 * k + 1], &bias = own[3 * k + 2];
      return l.batch_norm ? BatchNorm(y, weight, bias, 2 * k) : Norm(y, l.groups, weight, bias);
    };
    Tensor y = at::relu(norm(Conv(x, own[0], {}, l.stride, 1), 0));
    y = norm(Conv(y, own[3], {}, 1, 1), 1);
    if (own.size() == 6) return at::relu(y + x);
    return at::relu(y + norm(Conv(x, own[6], {}, l.stride, 0), 2));
  }
  Tensor operator()(const Embedding&) const { return at::embedding(own[0], x); }
  Tensor operator()(const Lstm& l) const {
    const Tensor zero =
        at::zeros({l.layers, x.size(0), l.out}, own[0].options().requires_grad(false));
    return std::get<0>(at::lstm(x, {zero, zero}, {own.data(), own.size()}, /*has_biases=*/true,
                                l.layers, /*dropout=*/0.0, /*train=*/false,
                                /*bidirectional=*/false, /*batch_first=*/true));
  }
  Tensor operator()(const Gru& l) const {
    const Tensor zero =
        at::zeros({l.layers, x.size(0), l.out}, own[0].options().requires_grad(false));
    return std::get<0>(at::gru(x, zero, {own.data(), own.size()}, /*has_biases=*/true, l.layers,
                               /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false,
                               /*batch_first=*/true));
  }
  Tensor operator()(const Positions&) const { return x + own[0]; }
  Tensor operator()(const LastPosition&) const {
    if (!pass.lengths.defined()) return x.select(1, x.size(1) - 1);
    const Tensor last = (pass.lengths - 1).view({-1, 1, 1}).expand({-1, 1, x.size(2)});
    return x.gather(1, last).squeeze(1);
  }
  Tensor operator()(const MeanOfPositions&) const {
    if (!pass.lengths.defined()) return x.mean(1);
    const Tensor used = InUse().unsqueeze(2).to(x.scalar_type());
    return (x * used).sum(1) / pass.lengths.unsqueeze(1).to(x.scalar_type());
  }
  Tensor operator()(const models::LayerNorm&) const { return LayerNorm(x, own[0], own[1]); }
  Tensor operator()(const Gelu&) const { return at::gelu(x); }
  Tensor operator()(const models::Attention& l) const {
    return Attention(x, own, l, 0, own.subspan(4));
  }
  Tensor operator()(const TransformerBlock& l) const {
    Tensors adapters = own.subspan(12);  // in the order of LinearMapsOf
    const auto take = [&adapters](const Adapter& adapter) {
      const Tensors taken = adapters.first(adapter.rank == 0 ? 0 : 2);
      adapters = adapters.subspan(taken.size());
      return taken;
    };
    const Tensors projections = adapters;
    take(l.in_proj);
    take(l.out_proj);
    const Tensors first = take(l.linear1), second = take(l.linear2);
    const Tensor attended = Attention(LayerNorm(x, own[8], own[9]), own, l, l.dropout, projections);
    const Tensor y = x + Dropped(attended, l.dropout);
    const Tensor hidden =
        at::gelu(Adapted(LayerNorm(y, own[10], own[11]), own[4], own[5], l.linear1, first));
    const Tensor result = Adapted(Dropped(hidden, l.dropout), own[6], own[7], l.linear2, second);
    return y + Dropped(result, l.dropout);
  }
  Tensor operator()(const Scale& l) const { return x * l.factor; }
  Tensor operator()(const Residual& l) const {
    Tensor y = x;
    size_t parameter = 0, buffer = 0;
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const auto [parameters, count] = l.tensors[i];
      y = std::visit(
          Apply{y, own.subspan(parameter, parameters), buffers.subspan(buffer, count), pass},
          l.layers[i]);
      parameter += parameters;
      buffer += count;
    }
    return x + y;
  }

  Tensor Dropped(const Tensor& input, double p) const {
    return pass.dropout == nullptr || p == 0 ? input : input * DropoutMask(input, p, *pass.dropout);
  }
  // [n, positions], of bool.
  Tensor InUse() const {
    return at::arange(x.size(1), pass.lengths.options()).unsqueeze(0) < pass.lengths.unsqueeze(1);
  }
  static Tensor LayerNorm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(input, weight.sizes(), weight, bias, kNormEpsilon);
  }
  // A linear map with its adapter, whose A and B are `low_rank`, if it has one.
  static Tensor Adapted(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const Adapter& adapter, Tensors low_rank) {
    Tensor y = at::linear(input, weight, bias);
    if (adapter.rank == 0) return y;
    return y.add(at::linear(at::linear(input, low_rank[0]), low_rank[1]), adapter.scale);
  }
  // Self-attention of [n, positions, width]. `weights` begin with those of torch.nn's
  // MultiheadAttention, `low_rank` with those of the layer's in_proj and out_proj; `p` is the
  // probability that an attention weight is dropped.
  template <typename Layer>
  Tensor Attention(const Tensor& input, Tensors weights, const Layer& layer, double p,
                   Tensors low_rank) const {
    const int64_t heads = layer.heads;
    const bool causal = layer.causal;
    const int64_t n = input.size(0), positions = input.size(1), width = input.size(2);
    const Tensor all = Adapted(input, weights[0], weights[1], layer.in_proj, low_rank)
                           .view({n, positions, 3, heads, width / heads})
                           .permute({2, 0, 3, 1, 4});  // [3, n, heads, positions, width / heads]
    const Tensor q = all.select(0, 0), k = all.select(0, 1), v = all.select(0, 2);
    // Padding lies behind all positions in use, so a causal position does not see any.
    std::optional<Tensor> seen;
    if (!causal && pass.lengths.defined()) seen = InUse().view({n, 1, 1, positions});
    Tensor y;
    if (pass.dropout == nullptr || p == 0) {
      y = at::scaled_dot_product_attention(q, k, v, seen, /*dropout_p=*/0.0, causal);
    } else {
      // LibTorch's own would draw its masks from a generator that slots share.
      if (causal)
        seen = at::ones({positions, positions}, at::dtype(at::kBool).device(q.device())).tril();
      const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads));
      Tensor scores = at::matmul(q * scale, k.transpose(2, 3));
      if (seen) scores = scores.masked_fill(seen->logical_not(), -HUGE_VAL);
      y = at::matmul(Dropped(at::softmax(scores, 3), p), v);
    }
    return Adapted(y.transpose(1, 2).reshape({n, positions, width}), weights[2], weights[3],
                   layer.out_proj, low_rank.subspan(layer.in_proj.rank == 0 ? 0 : 2));
  }

  // `first`: the index of the norm's mean among the buffers; its variance is the next one.
  Tensor BatchNorm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                   size_t first) const {
    // A channel with a single value has no variance; LibTorch would store NaN as the running one.
    const bool has_variance = input.numel() > input.size(1);
    const bool training = pass.statistics != Statistics::kRunning && has_variance;
    // The running statistics are read or updated.
    const bool uses = !training || pass.statistics == Statistics::kBatchAndMove;
    return at::batch_norm(input, weight, bias, uses ? buffers[first] : Tensor(),
                          uses ? buffers[first + 1] : Tensor(), training, kNormMomentum,
                          kNormEpsilon, /*cudnn_enabled=*/false);
  }
};

// Layers whose backward pass does not need their own output.
bool OutputIsFree(const Layer& layer) {
  return std::holds_alternative<Conv2d>(layer) || std::holds_alternative<Linear>(layer) ||
         std::holds_alternative<GroupNorm>(layer) || std::holds_alternative<BatchNorm>(layer);
}

}  // namespace

Network::Network(ModelSpec spec, at::Device device, bool checkpoint) : spec_(std::move(spec)) {
  if (spec_.is_script()) script_ = std::make_shared<ScriptModule>(spec_, device, checkpoint);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    if (spec_.tensors[i].second > 0) last_parametric_ = i;
    in_place_relu_.push_back(i > 0 && std::holds_alternative<Relu>(spec_.layers[i]) &&
                             OutputIsFree(spec_.layers[i - 1]));
  }
  if (checkpoint) ends_ = SegmentsOf(spec_).ends;
}

Tensors Network::Own(size_t begin, size_t end, Tensors parameters) const {
  if (begin == end) return {};
  const size_t first = spec_.tensors[begin].first;
  const auto [last, count] = spec_.tensors[end - 1];
  return parameters.subspan(first, last + count - first);
}

Tensor Network::Layers(size_t begin, size_t end, Tensor x, Tensors own,
                       const NetworkPass& pass) const {
  for (size_t i = begin; i < end; ++i) {
    const auto [first, count] = spec_.tensors[i];
    const auto [first_buffer, buffer_count] = spec_.buffers[i];
    x = std::visit(
        Apply{x, own.subspan(first - spec_.tensors[begin].first, count),
              buffer_count == 0 ? Tensors() : pass.all.subspan(first_buffer, buffer_count), pass,
              in_place_relu_[i] && i > begin},
        spec_.layers[i]);
  }
  return x;
}

Tensor Network::Segment(size_t begin, size_t end, const Tensor& x, Tensors own,
                        const NetworkPass& pass) const {
  std::optional<RandomStream> masks;  // as they are before the segment
  if (pass.dropout != nullptr) masks = *pass.dropout;
  const std::vector<Tensor> all(pass.all.begin(), pass.all.end());
  const auto part = [this, begin, end, all, masks, first = pass](Tensors inputs, bool again) {
    NetworkPass now = first;
    now.all = all;
    std::optional<RandomStream> same = masks;
    if (again && same) now.dropout = &*same;
    if (again && now.statistics == Statistics::kBatchAndMove) now.statistics = Statistics::kBatch;
    return std::vector<Tensor>{Layers(begin, end, inputs[0], inputs.subspan(1), now)};
  };
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), own.begin(), own.end());
  return Recomputed(part, std::move(inputs))[0];
}

Outputs Network::Forward(const Tensor& batch, Tensors parameters, RandomStream* dropout,
                         Statistics statistics, const Tensor& lengths) const {
  if (!spec_.move_buffers) statistics = Statistics::kRunning;
  if (script_ != nullptr) return script_->Forward(batch, parameters, dropout, statistics);
  Outputs outputs{.logits = batch};
  const NetworkPass pass{parameters, dropout, statistics, lengths};
  size_t begin = 0;
  if (at::GradMode::is_enabled()) {
    for (const size_t end : ends_) {  // the last segment keeps everything
      if (end == spec_.layers.size()) break;
      outputs.logits = Segment(begin, end, outputs.logits, Own(begin, end, parameters), pass);
      begin = end;
    }
  }
  const size_t last = std::max(begin, last_parametric_), layers = spec_.layers.size();
  outputs.representation = Layers(begin, last, outputs.logits, Own(begin, last, parameters), pass);
  outputs.logits =
      Layers(last, layers, outputs.representation, Own(last, layers, parameters), pass);
  return outputs;
}

std::vector<Tensor> ViewsOf(VectorView vector) {
  const at::ScalarType type = vector.dtype() == DType::kF32 ? at::kFloat : at::kDouble;
  const size_t width = SizeOf(vector.dtype());
  std::vector<Tensor> views;
  views.reserve(vector.layout->entries().size());
  for (const LayoutEntry& entry : vector.layout->entries()) {
    views.push_back(
        at::from_blob(vector.bytes.data() + entry.offset * width, entry.shape, at::dtype(type)));
  }
  return views;
}

std::vector<Tensor> ViewsOf(const Tensor& flat, const ParameterLayout& layout) {
  std::vector<Tensor> views;
  views.reserve(layout.entries().size());
  for (const LayoutEntry& entry : layout.entries()) {
    views.push_back(
        flat.narrow(0, static_cast<int64_t>(entry.offset), static_cast<int64_t>(entry.size))
            .view(entry.shape));
  }
  return views;
}

}  // namespace macaw::models
