#include "models/tensors.h"

#include <variant>

#include "absl/strings/str_cat.h"

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

struct Collect {
  Plans plans;

  void operator()(const Conv2d& l) { AddConv("", l.out, l.in, l.kernel, l.bias, plans); }
  void operator()(const Linear& l) {
    plans.push_back({"weight", {l.out, l.in}, Init::kUniform, l.in});
    if (l.bias) plans.push_back({"bias", {l.out}, Init::kUniform, l.in});
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
  void operator()(const Lstm& l) {
    for (int64_t k = 0; k < l.layers; ++k) {
      const std::string suffix = absl::StrCat("_l", k);
      const int64_t in = k == 0 ? l.in : l.out, gates = 4 * l.out;
      plans.push_back({"weight_ih" + suffix, {gates, in}, Init::kUniform, l.out});
      plans.push_back({"weight_hh" + suffix, {gates, l.out}, Init::kUniform, l.out});
      plans.push_back({"bias_ih" + suffix, {gates}, Init::kUniform, l.out});
      plans.push_back({"bias_hh" + suffix, {gates}, Init::kUniform, l.out});
    }
  }
  template <typename NoTensors>
  void operator()(const NoTensors&) {}
};

}  // namespace

std::vector<TensorPlan> TensorsOf(const Layer& layer) {
  Collect collect;
  std::visit(collect, layer);
  return std::move(collect.plans);
}

}  // namespace macaw::models
