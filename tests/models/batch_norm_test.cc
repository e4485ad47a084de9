// Batch norm, the ResNet and the VGG against LibTorch's own modules: outputs, gradients, running
// statistics.
#include <gtest/gtest.h>

#include "models/one_thread.h"
#include "tests/models/torch_twin.h"

namespace macaw::models {
namespace {

namespace nn = torch::nn;

nn::Conv2dOptions Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false);
}

// He et al. 2016, the basic block, as torchvision names its parts.
struct NormBlockImpl : nn::Module {
  NormBlockImpl(int64_t in, int64_t out, int64_t stride) {
    conv1 = register_module("conv1", nn::Conv2d(Conv(in, out, 3, stride, 1)));
    bn1 = register_module("bn1", nn::BatchNorm2d(out));
    conv2 = register_module("conv2", nn::Conv2d(Conv(out, out, 3, 1, 1)));
    bn2 = register_module("bn2", nn::BatchNorm2d(out));
    if (in != out || stride != 1) {
      downsample = register_module(
          "downsample",
          nn::Sequential(nn::Conv2d(Conv(in, out, 1, stride, 0)), nn::BatchNorm2d(out)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::relu(bn1->forward(conv1->forward(x)));
    y = bn2->forward(conv2->forward(y));
    return torch::relu(y + (downsample.is_empty() ? x : downsample->forward(x)));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(NormBlock);

ModelSpec NormSpec(ModelConfig config, DType dtype = DType::kF64) {
  absl::StatusOr<ModelSpec> spec = BuildSpec(config, dtype);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

// Two training passes (the second on other images, so that the statistics move twice), a gradient,
// and evaluation.
void ExpectEqual(const ModelSpec& spec, nn::Sequential modules, double tolerance) {
  UseOneThread();
  if (spec.layout->dtype() == DType::kF64) modules->to(torch::kDouble);
  TorchTwin twin(spec, TensorsOf(*modules));
  const Network network(spec);
  torch::manual_seed(1);
  std::vector<int64_t> shape = {6};
  shape.insert(shape.end(), spec.input_shape.begin(), spec.input_shape.end());
  const at::Tensor y = torch::randint(0, spec.outputs, {6}, torch::kLong);
  modules->train();
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor x =
        torch::randn(shape, modules->parameters()[0].options().requires_grad(false));
    const at::Tensor ours =
        network.Forward(x, twin.views(), nullptr, Statistics::kBatchAndMove).logits;
    const at::Tensor theirs = modules->forward(x);
    EXPECT_LT((ours - theirs).abs().max().item<double>(), tolerance * 10);
    torch::nn::functional::cross_entropy(ours, y).backward();
    torch::nn::functional::cross_entropy(theirs, y).backward();
  }
  twin.ExpectEqualGradients(tolerance);
  twin.ExpectEqualValues(tolerance);
  modules->eval();
  const at::Tensor x = torch::randn(shape, modules->parameters()[0].options().requires_grad(false));
  const at::Tensor ours = network.Forward(x, twin.views(), nullptr).logits;
  EXPECT_LT((ours - modules->forward(x)).abs().max().item<double>(), tolerance * 100);
  twin.ExpectEqualValues(tolerance);  // evaluation moves nothing
}

TEST(Network, OfBatchNormIsTorchNns) {
  const ModelSpec spec = NormSpec({.name = "layers",
                                   .layers = {"conv 4 3 pad 1 nobias", "batchnorm", "relu",
                                              "flatten", "linear 5", "batchnorm", "linear 3"},
                                   .input_shape = {2, 5, 4},
                                   .classes = 3});
  ExpectEqual(
      spec,
      nn::Sequential(nn::Conv2d(Conv(2, 4, 3, 1, 1)), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(),
                     nn::Linear(80, 5), nn::BatchNorm1d(5), nn::Linear(5, 3)),
      1e-12);
}

TEST(Network, OfResNet18IsTorchNns) {
  const ModelSpec spec =
      NormSpec({.name = "resnet18", .input_shape = {3, 16, 16}, .classes = 10}, DType::kF32);
  nn::Sequential modules(nn::Conv2d(Conv(3, 64, 3, 1, 1)), nn::BatchNorm2d(64), nn::ReLU());
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    modules->push_back(NormBlock(in, out, out == 64 ? 1 : 2));
    modules->push_back(NormBlock(out, out, 1));
    in = out;
  }
  modules->push_back(nn::AdaptiveAvgPool2d(1));
  modules->push_back(nn::Flatten());
  modules->push_back(nn::Linear(512, 10));
  ExpectEqual(spec, modules, 1e-4);
}

TEST(Network, OfVgg11IsTorchNns) {
  const ModelSpec spec =
      NormSpec({.name = "vgg11", .input_shape = {3, 32, 32}, .classes = 10}, DType::kF32);
  nn::Sequential modules;
  int64_t in = 3;
  for (const int64_t out : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {
    if (out == 0) {
      modules->push_back(nn::MaxPool2d(2));
      continue;
    }
    modules->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    modules->push_back(nn::ReLU());
    in = out;
  }
  modules->push_back(nn::Flatten());
  for (const int64_t out : {512, 512, 10}) {
    modules->push_back(nn::Linear(512, out));
    if (out == 512) modules->push_back(nn::ReLU());
  }
  ExpectEqual(spec, modules, 1e-4);
}

TEST(Network, NormalisesByTheBatchWithoutMovingWhereAsked) {
  UseOneThread();
  ModelConfig config{
      .name = "layers", .layers = {"batchnorm", "linear 1"}, .input_shape = {3}, .classes = 1};
  const ModelSpec spec = NormSpec(config);
  FlatVector model = InitialModel(spec, 1);
  const FlatVector start = model.Clone();
  const std::vector<at::Tensor> w = ViewsOf(model.view());
  const at::Tensor x = torch::randn({8, 3}, torch::kDouble) * 3 + 1;
  const Network network(spec);
  const at::Tensor batch = network.Forward(x, w, nullptr, Statistics::kBatch).representation;
  EXPECT_LT(batch.mean(0).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(DigestOfValues(model.view()), DigestOfValues(start.view()));
  EXPECT_TRUE(torch::equal(
      batch, network.Forward(x, w, nullptr, Statistics::kBatchAndMove).representation));
  EXPECT_NE(DigestOfValues(model.view()), DigestOfValues(start.view()));

  // Statistics that never move are used for normalisation in training and evaluation.
  config.buffers = "server";
  FlatVector fixed = start.Clone();
  const std::vector<at::Tensor> v = ViewsOf(fixed.view());
  const Network frozen(NormSpec(config));
  const at::Tensor trained =
      frozen.Forward(x, v, nullptr, Statistics::kBatchAndMove).representation;
  EXPECT_TRUE(torch::equal(trained, frozen.Forward(x, v, nullptr).representation));
  EXPECT_EQ(DigestOfValues(fixed.view()), DigestOfValues(start.view()));
}

}  // namespace
}  // namespace macaw::models
