#include "models/tensors.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macaw::models {
namespace {

using Plans = std::vector<TensorPlan>;

void AddConv(const std::string& prefix, int64_t out, int64_t in, int64_t kernel, bool bias,
             Plans& plans) {
  const int64_t fan_in = in * kernel * kernel;
  plans.push_back({prefix + "weight", {out, in, kernel, kernel}, Init::kUniform, fan_in});
  if (bias) plans.push_back({prefix + "bias", {out}, Init::kUniform, fan_in});
}

void AddNorm(const std::string& prefix, int64_t channels, Plans& plans) {
  plans.push_back({prefix + "weight", {channels}, Init::kOne, 1});
  plans.push_back({prefix + "bias", {channels}, Init::kZero, 1});
}

void AddBatchNorm(const std::string& prefix, int64_t channels, Plans& plans) {
  AddNorm(prefix, channels, plans);
  plans.push_back({prefix + "running_mean", {channels}, Init::kZero, 1, Group::kBuffer});
  plans.push_back({prefix + "running_var", {channels}, Init::kOne, 1, Group::kBuffer});
}

void AddLinear(const std::string& prefix, int64_t out, int64_t in, bool bias, Plans& plans) {
  plans.push_back({prefix + "weight", {out, in}, Init::kUniform, in});
  if (bias) plans.push_back({prefix + "bias", {out}, Init::kUniform, in});
}

// torch.nn.MultiheadAttention. Its biases begin at zero.
void AddAttention(const std::string& prefix, int64_t width, Plans& plans) {
  plans.push_back({prefix + "in_proj_weight", {3 * width, width}, Init::kGlorot, 4 * width});
  plans.push_back({prefix + "in_proj_bias", {3 * width}, Init::kZero, 1});
  plans.push_back({prefix + "out_proj.weight", {width, width}, Init::kUniform, width});
  plans.push_back({prefix + "out_proj.bias", {width}, Init::kZero, 1});
}

// torch.nn.LSTM has four gates, torch.nn.GRU three.
void AddRecurrent(int64_t gates, int64_t in, int64_t out, int64_t layers, Plans& plans) {
  for (int64_t k = 0; k < layers; ++k) {
    const std::string suffix = absl::StrCat("_l", k);
    const int64_t from = k == 0 ? in : out, rows = gates * out;
    plans.push_back({"weight_ih" + suffix, {rows, from}, Init::kUniform, out});
    plans.push_back({"weight_hh" + suffix, {rows, out}, Init::kUniform, out});
    plans.push_back({"bias_ih" + suffix, {rows}, Init::kUniform, out});
    plans.push_back({"bias_hh" + suffix, {rows}, Init::kUniform, out});
  }
}

void AddAdapter(const std::string& weight, int64_t out, int64_t in, const Adapter& adapter,
                Plans& plans) {
  if (adapter.rank == 0) return;
  plans.push_back({.name = AdapterTensor(weight, 'A'),
                   .shape = {adapter.rank, in},
                   .init = Init::kNormalOfFanIn,
                   .fan_in = in,
                   .adapter = true});
  plans.push_back({.name = AdapterTensor(weight, 'B'),
                   .shape = {out, adapter.rank},
                   .init = Init::kZero,
                   .adapter = true});
}

void AddProjections(const std::string& prefix, int64_t width, const Adapter& in_proj,
                    const Adapter& out_proj, Plans& plans) {
  AddAdapter(prefix + "in_proj_weight", 3 * width, width, in_proj, plans);
  AddAdapter(prefix + "out_proj.weight", width, width, out_proj, plans);
}

struct Collect {
  Plans plans;

  void operator()(const Conv2d& l) { AddConv("", l.out, l.in, l.kernel, l.bias, plans); }
  void operator()(const Linear& l) {
    AddLinear("", l.out, l.in, l.bias, plans);
    AddAdapter("weight", l.out, l.in, l.adapter, plans);
  }
  void operator()(const GroupNorm& l) { AddNorm("", l.channels, plans); }
  void operator()(const BatchNorm& l) { AddBatchNorm("", l.channels, plans); }
  void operator()(const BasicBlock& l) {
    const auto add_norm = l.batch_norm ? AddBatchNorm : AddNorm;
    // The convolutions have no bias, because the norm after each of them would remove it.
    AddConv("conv1.", l.out, l.in, 3, false, plans);
    add_norm(l.batch_norm ? "bn1." : "gn1.", l.out, plans);
    AddConv("conv2.", l.out, l.out, 3, false, plans);
    add_norm(l.batch_norm ? "bn2." : "gn2.", l.out, plans);
    if (l.in != l.out || l.stride != 1) {
      AddConv("downsample.0.", l.out, l.in, 1, false, plans);
      add_norm("downsample.1.", l.out, plans);
    }
  }
  void operator()(const Embedding& l) {
    plans.push_back({"weight", {l.tokens, l.out}, Init::kNormal, 1});
  }
  void operator()(const Lstm& l) { AddRecurrent(4, l.in, l.out, l.layers, plans); }
  void operator()(const Gru& l) { AddRecurrent(3, l.in, l.out, l.layers, plans); }
  void operator()(const Positions& l) {
    plans.push_back({"weight", {l.count, l.width}, Init::kNormal, 1});
  }
  void operator()(const LayerNorm& l) { AddNorm("", l.width, plans); }
  void operator()(const Attention& l) {
    AddAttention("", l.width, plans);
    AddProjections("", l.width, l.in_proj, l.out_proj, plans);
  }
  void operator()(const TransformerBlock& l) {
    AddAttention("self_attn.", l.width, plans);
    AddLinear("linear1.", l.ff, l.width, true, plans);
    AddLinear("linear2.", l.width, l.ff, true, plans);
    AddNorm("norm1.", l.width, plans);
    AddNorm("norm2.", l.width, plans);
    AddProjections("self_attn.", l.width, l.in_proj, l.out_proj, plans);
    AddAdapter("linear1.weight", l.ff, l.width, l.linear1, plans);
    AddAdapter("linear2.weight", l.width, l.ff, l.linear2, plans);
  }
  void operator()(const Residual& l) {
    for (size_t i = 0; i < l.layers.size(); ++i) {
      for (TensorPlan& plan : TensorsOf(l.layers[i])) {
        plan.name = absl::StrCat(i, ".", plan.name);
        plans.push_back(std::move(plan));
      }
    }
  }
  template <typename NoTensors>
  void operator()(const NoTensors&) {}
};

struct CollectMaps {
  std::vector<LinearMap> maps;

  void operator()(Linear& l) { maps.push_back({"weight", l.in, l.out, &l.adapter}); }
  void operator()(Attention& l) { Projections("", l.width, l.in_proj, l.out_proj); }
  void operator()(TransformerBlock& l) {
    Projections("self_attn.", l.width, l.in_proj, l.out_proj);
    maps.push_back({"linear1.weight", l.width, l.ff, &l.linear1});
    maps.push_back({"linear2.weight", l.ff, l.width, &l.linear2});
  }
  void operator()(Residual& l) {
    for (size_t i = 0; i < l.layers.size(); ++i) {
      for (LinearMap& map : LinearMapsOf(l.layers[i])) {
        map.weight = absl::StrCat(i, ".", map.weight);
        maps.push_back(std::move(map));
      }
    }
  }
  template <typename NoMaps>
  void operator()(NoMaps&) {}

  void Projections(const std::string& prefix, int64_t width, Adapter& in_proj, Adapter& out_proj) {
    maps.push_back({prefix + "in_proj_weight", width, 3 * width, &in_proj});
    maps.push_back({prefix + "out_proj.weight", width, width, &out_proj});
  }
};

}  // namespace

std::vector<TensorPlan> TensorsOf(const Layer& layer) {
  Collect collect;
  std::visit(collect, layer);
  return std::move(collect.plans);
}

std::vector<LinearMap> LinearMapsOf(Layer& layer) {
  CollectMaps collect;
  std::visit(collect, layer);
  return std::move(collect.maps);
}

std::string AdapterTensor(absl::string_view weight, char which) {
  if (!absl::ConsumeSuffix(&weight, "in_proj_weight")) absl::ConsumeSuffix(&weight, "weight");
  return absl::StrCat(weight, "lora_", absl::string_view(&which, 1), ".weight");
}

void CountTensors(Layer& layer) {
  auto* const residual = std::get_if<Residual>(&layer);
  if (residual == nullptr) return;
  residual->tensors.clear();
  for (Layer& inner : residual->layers) {
    CountTensors(inner);
    std::pair<size_t, size_t>& count = residual->tensors.emplace_back();
    for (const TensorPlan& tensor : TensorsOf(inner))
      ++(tensor.group == Group::kParameter ? count.first : count.second);
  }
}

}  // namespace macaw::models
