// A network with adapters computes what the one with their product in its weights computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/adapters.h"
#include "models/network.h"

namespace macaw::models {
namespace {

const std::vector<std::vector<std::string>> kAdapters = {
    {"lora 2 *"},
    {"lora 1 alpha 3 *in_proj*", "lora 3 alpha 2 *linear*", "lora 2 3.*"},
    {"lora 3 *out_proj*"},
    {"lora 2 alpha 1 *linear2*", "lora 1 2.2.*"}};

ModelConfig TextWith(const std::vector<std::string>& adapters, bool dropout) {
  return {.name = "layers",
          .layers = {"embedding 9 8",
                     dropout ? "transformer heads 2 ff 12 causal dropout 0.3"
                             : "transformer heads 2 ff 12 causal",
                     "residual [layernorm, attention heads 2 causal, residual [linear 8, relu]]",
                     "linear 9"},
          .input_shape = {5},
          .classes = 9,
          .adapters = adapters};
}

struct Passed {
  at::Tensor outputs;
  std::vector<at::Tensor> gradients;  // by entry of the layout; none: undefined
};

// The outputs and the gradients of Σ outputs · direction.
Passed Pass(const ModelSpec& spec, FlatVector& model, uint64_t dropout) {
  const Network network(spec);
  std::vector<at::Tensor> views = ViewsOf(model.view());
  for (at::Tensor& view : views) view.requires_grad_(true);
  torch::manual_seed(3);
  const at::Tensor batch = torch::randint(0, 9, {4, 5}, torch::kInt32);
  const at::Tensor direction = torch::randn({4, 5, 9}, torch::kDouble);
  RandomStream stream({.seed = dropout});
  Passed passed;
  passed.outputs = network.Forward(batch, views, dropout == 0 ? nullptr : &stream).logits;
  (passed.outputs * direction).sum().backward();
  for (const at::Tensor& view : views) passed.gradients.push_back(view.grad());
  return passed;
}

TEST(AdaptedNetwork, IsTheMergedOne) {
  for (const std::vector<std::string>& adapters : kAdapters) {
    for (const bool dropout : {false, true}) {
      const ModelSpec spec = *BuildSpec(TextWith(adapters, dropout), DType::kF64);
      FlatVector model = InitialModel(spec, 4);
      RandomStream stream({.seed = 8});
      for (double& value : model.As<double>()) value += 0.3 * stream.Normal();
      MergedModel merged = *MergeAdapters(spec, model);
      const Passed ours = Pass(spec, model, dropout ? 5 : 0);
      const Passed theirs = Pass(merged.spec, merged.model, dropout ? 5 : 0);
      EXPECT_LT((ours.outputs - theirs.outputs).abs().max().item<double>(), 1e-11);
      // By W ← W + s·B·A: dA = s·Bᵀ·dW and dB = s·dW·Aᵀ.
      const std::vector<at::Tensor> views = ViewsOf(model.view());
      for (const AdaptedWeight& adapted : spec.adapters) {
        const at::Tensor of_weight = ours.gradients[adapted.weight];
        const std::string& name = spec.layout->entries()[adapted.weight].name;
        const size_t plain = static_cast<size_t>(merged.spec.layout->Find(name) -
                                                 merged.spec.layout->entries().data());
        EXPECT_LT((of_weight - theirs.gradients[plain]).abs().max().item<double>(), 1e-10) << name;
        const double s = adapted.adapter.scale;
        const at::Tensor da = s * at::matmul(views[adapted.b].t(), of_weight);
        const at::Tensor db = s * at::matmul(of_weight, views[adapted.a].t());
        EXPECT_LT((ours.gradients[adapted.a] - da).abs().max().item<double>(), 1e-10) << name;
        EXPECT_LT((ours.gradients[adapted.b] - db).abs().max().item<double>(), 1e-10) << name;
      }
    }
  }
}

}  // namespace
}  // namespace macaw::models
