#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/network.h"
#include "models/one_thread.h"
#include "tests/training/testing.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {
namespace {

size_t WidthOf(const std::vector<int64_t>& shape) {
  size_t width = 1;
  for (const int64_t extent : shape) width *= static_cast<size_t>(extent);
  return width;
}

TEST(EagerTrainer, TakesAStepOnEveryNamedModel) {
  for (const models::NamedModel& named : models::NamedModels()) {
    if (named.name.starts_with("char_")) continue;  // of tokens: eager_tokens_test.cc
    ModelConfig config;
    config.name = named.name;
    config.input_shape = {1, 28, 28};
    if (named.name == "logistic") config.input_shape = {60};
    if (named.name.starts_with("resnet18")) config.input_shape = {3, 8, 8};
    if (named.name == "vgg11") config.input_shape = {3, 32, 32};
    config.classes = 10;
    const models::ModelSpec spec = *models::BuildSpec(config, DType::kF32);
    const Examples examples = RandomExamples(4, WidthOf(config.input_shape), 10, 1);
    const FlatVector x = models::InitialModel(spec, 1);
    LocalPlan plan;
    plan.stages = {StageFrom(View(x), 0.01), StageFrom(StageEnd{0}, 0)};
    plan.stages[1].kind = StageKind::kLoss;
    const auto trainer = TrainerOf(spec, TaskKind::kClassification);
    const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Classes()));
    EXPECT_EQ(outcomes[0].steps, 1u) << named.name;
    // With batch norm the two results differ: the first uses the batch's statistics.
    if (!spec.has_buffers()) {
      EXPECT_LT(outcomes[1].sums[1], outcomes[0].sums[1]) << named.name;
    }
    for (size_t i = 0; i < spec.layout->entries().size(); ++i) {
      const LayoutEntry& entry = spec.layout->entries()[i];
      const auto after = outcomes[0].end.As<float>().subspan(entry.offset, entry.size);
      const auto before = View(x).As<float>().subspan(entry.offset, entry.size);
      EXPECT_FALSE(std::equal(after.begin(), after.end(), before.begin()))
          << named.name << ": " << entry.name << " did not move";
    }
  }
}

// Every kind of layer at once, in double, against central differences of the loss stage.
TEST(EagerTrainer, DifferentiatesEveryLayer) {
  const models::ModelSpec spec = SpecOf(
      {"conv 4 3 pad 1", "tanh", "maxpool 2", "block 6 stride 2", "avgpool 2", "groupnorm 3",
       "sigmoid", "conv 5 1", "globalavgpool", "flatten", "linear 7 nobias", "relu", "linear 3"},
      {2, 9, 8}, 3, DType::kF64);
  const Examples examples = RandomExamples(5, 2 * 9 * 8, 3, 3);
  const FlatVector x = models::InitialModel(spec, 4);
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const ClientTask task = TaskOf(examples.Classes());
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0)};
  plan.stages[0].kind = StageKind::kGradient;
  const FlatVector gradient = FlatVector::CopyOf(MustRun(*trainer, plan, task)[0].end, spec.layout);
  const auto loss_at = [&](const FlatVector& point) {
    const auto sums = trainer->Evaluate(View(point), task.train, 0, task.train.size(), 100);
    return sums->at(1) / sums->at(0);
  };
  RandomStream stream({.seed = 1});
  for (const LayoutEntry& entry : spec.layout->entries()) {
    for (int probe = 0; probe < 4; ++probe) {
      const uint64_t i = entry.offset + stream.Below(entry.size);
      const double h = 1e-6;
      FlatVector up = x.Clone(), down = x.Clone();
      up.As<double>()[i] += h;
      down.As<double>()[i] -= h;
      EXPECT_NEAR(gradient.As<double>()[i], (loss_at(up) - loss_at(down)) / (2 * h), 1e-8)
          << entry.name << " element " << i - entry.offset;
    }
  }
}

// The objective's loss and gradient against LibTorch's, weights and smoothing included.
TEST(EagerTrainer, HasLibTorchsCrossEntropy) {
  models::UseOneThread();
  const models::ModelSpec spec = SpecOf({"linear 5", "relu", "linear 3"}, {4}, 3, DType::kF64);
  const Examples examples = RandomExamples(17, 4, 3, 1);
  const FlatVector x = models::InitialModel(spec, 1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 1)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[0].local.class_weights = {1, 2.5, 0.5};
  plan.stages[0].local.label_smoothing = 0.1;
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];

  FlatVector copy = x.Clone();
  std::vector<at::Tensor> w = models::ViewsOf(copy.view());
  for (at::Tensor& p : w) p.requires_grad_(true);
  at::Tensor features = at::empty({17, 4}, at::kFloat), labels = at::empty({17}, at::kLong);
  const data::Rows rows = examples.Classes();
  std::memcpy(features.data_ptr<float>(), rows.block.features, 17 * 4 * sizeof(float));
  for (int64_t i = 0; i < 17; ++i) labels.data_ptr<int64_t>()[i] = rows.block.classes[i];
  const at::Tensor loss = at::cross_entropy_loss(
      models::Network(spec).Forward(features.to(at::kDouble), w, nullptr).logits, labels,
      at::tensor({1.0, 2.5, 0.5}, at::kDouble), at::Reduction::Mean, -100, 0.1);
  loss.backward();
  EXPECT_NEAR(outcome.sums[1] / outcome.sums[0], loss.item<double>(), 1e-14);
  for (size_t i = 0; i < w.size(); ++i) {
    const LayoutEntry& entry = spec.layout->entries()[i];
    for (uint64_t k = 0; k < entry.size; ++k) {
      EXPECT_NEAR(outcome.end.As<double>()[entry.offset + k],
                  w[i].grad().flatten()[static_cast<int64_t>(k)].item<double>(), 1e-14)
          << entry.name;
    }
  }
}

TEST(TorchBackend, ProfileNamesWhatTheBitsDependOn) {
  TrainerSetup setup;
  setup.backend = TorchChoice();
  const NumericProfile profile = *TorchBackend().Profile(setup);
  EXPECT_EQ(profile.trainer, "torch");
  EXPECT_NE(profile.libraries.find("libtorch 2."), std::string::npos) << profile.libraries;
  EXPECT_NE(profile.libraries.find("glibc 2."), std::string::npos) << profile.libraries;
  EXPECT_FALSE(profile.instruction_set.empty());
  EXPECT_EQ(profile, *TorchBackend().Profile(setup));
}

}  // namespace
}  // namespace macaw::training
