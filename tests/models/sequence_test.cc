// Models of sequences against LibTorch's own modules.
#include <gtest/gtest.h>

#include "models/one_thread.h"
#include "tests/models/torch_twin.h"

namespace macaw::models {
namespace {

namespace nn = torch::nn;

struct TwoLayerLstm : nn::Module {
  TwoLayerLstm(int64_t tokens, int64_t width, int64_t hidden) {
    embedding = register_module("0", nn::Embedding(tokens, width));
    lstm = register_module(
        "1", nn::LSTM(nn::LSTMOptions(width, hidden).num_layers(2).batch_first(true)));
    linear = register_module("2", nn::Linear(hidden, tokens));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear->forward(std::get<0>(lstm->forward(embedding->forward(x))));
  }
  nn::Embedding embedding{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Linear linear{nullptr};
};

TEST(Network, OfAnLstmIsTorchNns) {
  UseOneThread();
  const ModelSpec spec = *BuildSpec({.name = "layers",
                                     .layers = {"embedding 7 3", "lstm 5 layers 2", "linear 7"},
                                     .input_shape = {6},
                                     .classes = 7},
                                    DType::kF64);
  EXPECT_EQ(spec.positions, 6);
  TwoLayerLstm modules(7, 3, 5);
  TorchTwin twin(spec, TensorsOf(modules));
  torch::manual_seed(1);
  const at::Tensor x = torch::randint(0, 7, {4, 6}, torch::kLong);
  const at::Tensor target = torch::randint(0, 7, {24}, torch::kLong);
  const at::Tensor ours = Network(spec).Forward(x.to(torch::kInt), twin.views(), nullptr).logits;
  const at::Tensor theirs = modules.forward(x);
  EXPECT_EQ(ours.sizes(), (std::vector<int64_t>{4, 6, 7}));
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-12);
  torch::nn::functional::cross_entropy(ours.flatten(0, 1), target).backward();
  torch::nn::functional::cross_entropy(theirs.flatten(0, 1), target).backward();
  twin.ExpectEqualGradients(1e-11);
}

struct TwoLayerGru : nn::Module {
  TwoLayerGru(int64_t tokens, int64_t width, int64_t hidden) {
    embedding = register_module("0", nn::Embedding(tokens, width));
    gru = register_module("1",
                          nn::GRU(nn::GRUOptions(width, hidden).num_layers(2).batch_first(true)));
    linear = register_module("2", nn::Linear(hidden, tokens));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear->forward(std::get<0>(gru->forward(embedding->forward(x))));
  }
  nn::Embedding embedding{nullptr};
  nn::GRU gru{nullptr};
  nn::Linear linear{nullptr};
};

TEST(Network, OfAGruIsTorchNns) {
  UseOneThread();
  const ModelSpec spec = *BuildSpec({.name = "layers",
                                     .layers = {"embedding 7 3", "gru 5 layers 2", "linear 7"},
                                     .input_shape = {6},
                                     .classes = 7},
                                    DType::kF64);
  TwoLayerGru modules(7, 3, 5);
  TorchTwin twin(spec, TensorsOf(modules));
  torch::manual_seed(1);
  const at::Tensor x = torch::randint(0, 7, {4, 6}, torch::kLong);
  const at::Tensor target = torch::randint(0, 7, {24}, torch::kLong);
  const at::Tensor ours = Network(spec).Forward(x.to(torch::kInt), twin.views(), nullptr).logits;
  const at::Tensor theirs = modules.forward(x);
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-12);
  torch::nn::functional::cross_entropy(ours.flatten(0, 1), target).backward();
  torch::nn::functional::cross_entropy(theirs.flatten(0, 1), target).backward();
  twin.ExpectEqualGradients(1e-11);
}

// A position's output must not depend on later tokens, or the model could read the answer.
class TokenModel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Named, TokenModel,
                         testing::Values("char_lstm", "char_gru", "char_transformer"));

TEST_P(TokenModel, LooksBackOnly) {
  UseOneThread();
  const ModelSpec spec =
      *BuildSpec({.name = GetParam(), .input_shape = {10}, .classes = 20}, DType::kF32);
  FlatVector model = InitialModel(spec, 2);
  const std::vector<at::Tensor> w = ViewsOf(model.view());
  const Network network(spec);
  const at::Tensor x = torch::arange(30, torch::kInt).remainder(20).reshape({3, 10});
  at::Tensor changed = x.clone();
  changed.slice(1, 6) = 0;
  const at::Tensor one = network.Forward(x, w, nullptr).logits;
  const at::Tensor other = network.Forward(changed, w, nullptr).logits;
  EXPECT_LT((one - other).slice(1, 0, 6).abs().max().item<double>(), 1e-6);
  EXPECT_GT((one - other).slice(1, 6).abs().max().item<double>(), 1e-3);
}

}  // namespace
}  // namespace macaw::models
