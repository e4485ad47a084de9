#include "models/network.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/one_thread.h"

namespace macaw::models {
namespace {

ModelSpec SpecOf(ModelConfig config, DType dtype = DType::kF32) {
  return *BuildSpec(config, dtype);
}

// The same network built from torch::nn modules by hand, with the same parameters.
TEST(Network, OfLeNet5IsWhatTorchNnComputes) {
  UseOneThread();
  namespace nn = torch::nn;
  const ModelSpec spec = SpecOf({.name = "lenet5", .input_shape = {1, 28, 28}, .classes = 10});
  FlatVector model = InitialModel(spec, 5);
  std::vector<at::Tensor> parameters = ViewsOf(model.view());

  nn::Sequential modules(nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::ReLU(),
                         nn::MaxPool2d(2), nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2),
                         nn::Flatten(), nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84),
                         nn::ReLU(), nn::Linear(84, 10));
  const auto named = modules->named_parameters();
  ASSERT_EQ(named.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(named[i].key(), spec.layout->entries()[i].name);
    ASSERT_EQ(named[i].value().sizes(), parameters[i].sizes()) << named[i].key();
    const torch::NoGradGuard without_graph;
    modules->parameters()[i].copy_(parameters[i]);
  }

  torch::manual_seed(1);
  const at::Tensor x = torch::randn({20, 1, 28, 28});
  const at::Tensor y = torch::randint(0, 10, {20}, torch::kLong);
  for (at::Tensor& p : parameters) p.requires_grad_(true);
  const at::Tensor ours =
      torch::nn::functional::cross_entropy(Network(spec).Forward(x, parameters, nullptr).logits, y);
  const at::Tensor theirs = torch::nn::functional::cross_entropy(modules->forward(x), y);
  ours.backward();
  theirs.backward();
  EXPECT_NEAR(ours.item<double>(), theirs.item<double>(), 1e-6);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_LT((parameters[i].grad() - named[i].value().grad()).abs().max().item<double>(), 1e-6)
        << named[i].key();
  }
}

TEST(Network, OfABasicBlockIsResNets) {
  UseOneThread();
  const ModelSpec spec = SpecOf({.name = "layers",
                                 .layers = {"block 4 stride 2", "block 4", "flatten", "linear 2"},
                                 .input_shape = {2, 4, 4},
                                 .classes = 2});
  FlatVector model = InitialModel(spec, 1);
  const std::vector<at::Tensor> w = ViewsOf(model.view());
  const auto conv = [](const at::Tensor& x, const at::Tensor& k, int64_t stride, int64_t pad) {
    return torch::conv2d(x, k, {}, stride, pad);
  };
  const auto norm = [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return torch::group_norm(x, 2, weight, bias);
  };
  const at::Tensor x =
      torch::ones({3, 2, 4, 4}).cumsum(3) - 0.3 * torch::ones({3, 2, 4, 4}).cumsum(2);
  at::Tensor h = norm(conv(x, w[0], 2, 1), w[1], w[2]).relu();
  h = norm(conv(h, w[3], 1, 1), w[4], w[5]);
  h = (h + norm(conv(x, w[6], 2, 0), w[7], w[8])).relu();
  at::Tensor g = norm(conv(h, w[9], 1, 1), w[10], w[11]).relu();
  g = (norm(conv(g, w[12], 1, 1), w[13], w[14]) + h).relu();
  const at::Tensor expected = torch::linear(g.flatten(1), w[15], w[16]);
  const Outputs outputs = Network(spec).Forward(x, w, nullptr);
  EXPECT_TRUE(torch::equal(outputs.logits, expected));
  EXPECT_TRUE(torch::equal(outputs.representation, g.flatten(1)));
}

TEST(Network, DropsWhatItsStreamSaysAndNothingInEvaluation) {
  UseOneThread();
  const ModelSpec spec = SpecOf({.name = "layers",
                                 .layers = {"dropout 0.25", "linear 1"},
                                 .input_shape = {4000},
                                 .classes = 1});
  FlatVector model(spec.layout);
  const std::vector<at::Tensor> w = ViewsOf(model.view());
  const at::Tensor x = torch::ones({2, 4000});
  const Network network(spec);
  RandomStream stream({.seed = 1, .purpose = Purpose::kDropout}), same = stream, other = stream;
  other.Skip(8000);
  const at::Tensor masked = network.Forward(x, w, &stream).representation;
  EXPECT_TRUE(torch::equal(masked, network.Forward(x, w, &same).representation));
  EXPECT_FALSE(torch::equal(masked, network.Forward(x, w, &other).representation));
  EXPECT_TRUE(torch::equal(x, network.Forward(x, w, nullptr).representation));
  // 8000 draws: a quarter is zero (four standard errors), the rest is 4/3.
  EXPECT_NEAR((masked == 0).sum().item<double>() / 8000, 0.25, 4 * 0.0048);
  EXPECT_NEAR(masked.max().item<double>(), 4.0 / 3.0, 1e-6);
}

}  // namespace
}  // namespace macaw::models
