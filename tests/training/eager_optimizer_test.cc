// Local steps of the eager trainer against LibTorch's own optimizers on the same network.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "models/network.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_module.h"
#include "tests/models/written_script.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

constexpr int64_t kRows = 9, kWidth = 4, kClasses = 3;

std::unique_ptr<torch::optim::Optimizer> LibTorchs(const LocalConfig& local,
                                                   std::vector<at::Tensor> w) {
  if (local.optimizer == "sgd") {
    return std::make_unique<torch::optim::SGD>(std::move(w), torch::optim::SGDOptions(local.lr)
                                                                 .momentum(local.momentum)
                                                                 .nesterov(local.nesterov)
                                                                 .weight_decay(local.weight_decay));
  }
  const auto with = [&](auto options) {
    return options.betas({local.beta1, local.beta2})
        .eps(local.epsilon)
        .weight_decay(local.weight_decay);
  };
  if (local.optimizer == "adam") {
    return std::make_unique<torch::optim::Adam>(std::move(w),
                                                with(torch::optim::AdamOptions(local.lr)));
  }
  return std::make_unique<torch::optim::AdamW>(std::move(w),
                                               with(torch::optim::AdamWOptions(local.lr)));
}

void ExpectSameWalk(LocalConfig local) {
  models::UseOneThread();
  const models::ModelSpec spec =
      SpecOf({"linear 5", "tanh", "linear 3"}, {kWidth}, kClasses, DType::kF64);
  const Examples examples = RandomExamples(kRows, kWidth, kClasses, 2);
  const FlatVector x = models::InitialModel(spec, 1);
  local.batch_size = 0;
  local.shuffle = false;
  local.epochs = 12;
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), local.lr)};
  plan.stages[0].local = local;
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
  EXPECT_EQ(outcome.steps, 12u);
  EXPECT_DOUBLE_EQ(outcome.rate_sum, 12 * local.lr);

  FlatVector copy = x.Clone();
  std::vector<at::Tensor> w = models::ViewsOf(copy.view());
  for (at::Tensor& p : w) p.requires_grad_(true);
  at::Tensor features = at::empty({kRows, kWidth}, at::kFloat);
  at::Tensor labels = at::empty({kRows}, at::kLong);
  const data::Rows rows = examples.Classes();
  std::memcpy(features.data_ptr<float>(), rows.block.features, kRows * kWidth * sizeof(float));
  for (int64_t i = 0; i < kRows; ++i) labels.data_ptr<int64_t>()[i] = rows.block.classes[i];
  features = features.to(at::kDouble);
  const models::Network network(spec);
  const auto optimizer = LibTorchs(local, w);
  for (int step = 0; step < 12; ++step) {
    optimizer->zero_grad();
    at::cross_entropy_loss(network.Forward(features, w, nullptr).logits, labels).backward();
    optimizer->step();
  }
  for (const LayoutEntry& entry : spec.layout->entries()) {
    for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      EXPECT_NEAR(outcome.end.As<double>()[i], copy.As<double>()[i], 1e-13) << entry.name;
      EXPECT_NE(outcome.end.As<double>()[i], x.As<double>()[i]) << entry.name;
    }
  }
}

LocalConfig With(const std::string& optimizer, double lr, double weight_decay) {
  LocalConfig local;
  local.optimizer = optimizer;
  local.lr = lr;
  local.weight_decay = weight_decay;
  return local;
}

TEST(EagerOptimizer, SgdTakesLibTorchsSteps) {
  LocalConfig local = With("sgd", 0.2, 0.01);
  local.momentum = 0.9;
  ExpectSameWalk(local);
  local.nesterov = true;
  ExpectSameWalk(local);
}

TEST(EagerOptimizer, AdamTakesLibTorchsSteps) {
  LocalConfig local = With("adam", 0.05, 0);
  ExpectSameWalk(local);
  local.beta1 = 0.8;
  local.beta2 = 0.95;
  local.epsilon = 1e-4;
  local.weight_decay = 0.1;
  ExpectSameWalk(local);
}

TEST(EagerOptimizer, AdamWWalksAsLibTorchs) { ExpectSameWalk(With("adamw", 0.05, 0.3)); }

// A layer that no batch passes, and one that some batches pass.
models::ModelSpec WithLayersLeftOut() {
  models::WrittenScript net("Net");
  net.Inner("always", models::WrittenLinear("Always", kWidth, kClasses));
  net.Inner("sometimes", models::WrittenLinear("Sometimes", kWidth, kClasses));
  net.Inner("never", models::WrittenLinear("Never", kWidth, kClasses));
  net.Define(
      "    y = self.always.forward(x)\n"
      "    if bool(x[0][0] > 0):\n"
      "        y = y + self.sometimes.forward(x)\n"
      "    return y\n");
  ModelConfig config;
  config.name = models::kScriptName;
  config.input_shape = {kWidth};
  config.classes = kClasses;
  config.tensors = models::ReadScriptContent(net.Bytes())->tensors;
  models::ModelSpec spec = *models::BuildSpec(config, DType::kF64);
  spec.script = std::make_shared<const std::string>(net.Bytes());
  return spec;
}

// A tensor without a gradient takes no step: no decay, and its momentum and Adam's count wait.
void ExpectStepsOfTensorsWithGradients(LocalConfig local) {
  models::UseOneThread();
  const models::ModelSpec spec = WithLayersLeftOut();
  const Examples examples({{1, 2, -1, 0.5}, {-0.5, 1, 0, 2}, {-1, 0.25, 2, 1}, {0.5, -2, 1, 1}},
                          {0, 1, 2, 1});
  FlatVector x(spec.layout);
  RandomStream stream({.seed = 3});
  for (const LayoutEntry& entry : spec.layout->entries())
    for (uint64_t i = 0; i < entry.size; ++i) x.As<double>()[entry.offset + i] = stream.Normal();
  local.batch_size = 1;
  local.shuffle = false;
  local.epochs = 3;
  local.clip_norm = 0.8;
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), local.lr)};
  plan.stages[0].local = local;
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];

  FlatVector copy = x.Clone();
  std::vector<at::Tensor> w = models::ViewsOf(copy.view());
  for (at::Tensor& p : w) p.requires_grad_(true);
  const models::Network network(spec);
  const auto optimizer = LibTorchs(local, w);
  const data::Rows rows = examples.Classes();
  for (int step = 0; step < 12; ++step) {
    const int row = step % 4;
    at::Tensor features = at::empty({1, kWidth}, at::kFloat);
    std::memcpy(features.data_ptr<float>(), rows.block.features + row * kWidth * sizeof(float),
                kWidth * sizeof(float));
    const at::Tensor label = at::full({1}, rows.block.classes[row], at::kLong);
    optimizer->zero_grad();
    at::cross_entropy_loss(network.Forward(features.to(at::kDouble), w, nullptr).logits, label)
        .backward();
    torch::nn::utils::clip_grad_norm_(w, local.clip_norm);
    optimizer->step();
  }
  for (const LayoutEntry& entry : spec.layout->entries()) {
    for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      EXPECT_NEAR(outcome.end.As<double>()[i], copy.As<double>()[i], 1e-6) << entry.name;
      EXPECT_EQ(outcome.end.As<double>()[i] == x.As<double>()[i], entry.name.starts_with("never"))
          << entry.name;
    }
  }
}

TEST(EagerOptimizer, LeavesTensorsWithoutAGradientAlone) {
  LocalConfig local = With("sgd", 0.2, 0.1);
  ExpectStepsOfTensorsWithGradients(local);
  local.momentum = 0.9;
  ExpectStepsOfTensorsWithGradients(local);
  local.nesterov = true;
  ExpectStepsOfTensorsWithGradients(local);
  ExpectStepsOfTensorsWithGradients(With("adam", 0.05, 0.1));
  ExpectStepsOfTensorsWithGradients(With("adamw", 0.05, 0.3));
}

TEST(EagerOptimizer, LeavesTensorsWithoutAGradientUncorrected) {
  const models::ModelSpec spec = WithLayersLeftOut();
  const Examples examples = RandomExamples(kRows, kWidth, kClasses, 2);
  FlatVector x(spec.layout), anchor(spec.layout);
  for (const LayoutEntry& entry : spec.layout->entries())
    for (uint64_t i = 0; i < entry.size; ++i) x.As<double>()[entry.offset + i] = 1;
  for (const char* const clip : {"gradient", "corrected"}) {
    LocalPlan plan;
    plan.stages = {StageFrom(View(x), 0.1)};
    plan.stages[0].correction = {.mu = 0.5, .anchor = View(anchor)};
    plan.stages[0].local.clip_norm = 1;
    plan.stages[0].local.clip = clip;
    const auto trainer = TrainerOf(spec, TaskKind::kClassification);
    const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
    const double never = outcome.end.As<double>()[spec.layout->Find("never.weight")->offset];
    EXPECT_EQ(never, 1) << clip;
    EXPECT_NE(outcome.end.As<double>()[spec.layout->Find("always.weight")->offset], 1) << clip;
  }
}

// The proximal term is part of the gradient, so it enters the moments.
TEST(EagerOptimizer, AdamTakesTheAffineCorrection) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector x = PointOf(spec, {0.5, -0.25, 0.125});
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  plan.stages[0].local.optimizer = "adam";
  plan.stages[0].local.epochs = 2;
  plan.stages[0].correction.mu = 3;
  const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Targets()))[0];
  EXPECT_TRUE(std::isnan(outcome.a_norm1));
  std::vector<double> start = {0.5, -0.25, 0.125}, w = start, m(3), s(3);
  for (int t = 1; t <= 2; ++t) {
    const std::vector<double> g = line.Gradient(w);
    for (int k = 0; k < 3; ++k) {
      const double d = g[k] + 3 * (w[k] - start[k]);
      m[k] = 0.9 * m[k] + 0.1 * d;
      s[k] = 0.999 * s[k] + 0.001 * d * d;
      w[k] -= 0.1 * (m[k] / (1 - std::pow(0.9, t))) /
              (std::sqrt(s[k] / (1 - std::pow(0.999, t))) + 1e-8);
    }
  }
  ExpectPoint(outcome.end, w, 1e-12);
}

}  // namespace
}  // namespace macaw::training
