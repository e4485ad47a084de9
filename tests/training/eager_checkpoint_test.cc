// local.checkpoint: what is computed again has the bits that it had, and moves nothing twice.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "models/segments.h"
#include "tests/training/checkpointing.h"
#include "tests/training/sequences.h"
#include "training/hooks.h"

namespace macaw::training {
namespace {

struct Model {
  std::string name;
  std::vector<std::string> layers;
  std::vector<int64_t> input;
  std::vector<std::string> adapters = {};
};

const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"vectors",
       {"linear 31", "relu", "dropout 0.3", "linear 29", "tanh", "dropout 0.2", "linear 27",
        "sigmoid", "linear 3"},
       {61}},
      {"images",
       {"conv 6 3 pad 1", "relu", "conv 6 3 pad 1", "batchnorm", "relu", "maxpool 2", "conv 8 3",
        "groupnorm 2", "relu", "flatten", "dropout 0.5", "linear 3"},
       {1, 11, 13}},
      {"blocks",
       {"conv 4 3 pad 1", "relu", "block 4 batchnorm", "block 6 stride 2 batchnorm", "block 6",
        "globalavgpool", "flatten", "linear 3"},
       {2, 8, 8}},
      {"residuals",
       {"linear 12", "relu", "residual [linear 12, batchnorm, relu, dropout 0.4]",
        "residual [linear 24, gelu, linear 12]", "relu", "linear 3"},
       {20}},
      {"recurrent",
       {"lstm 8", "dropout 0.3", "gru 8", "linear 8", "tanh", "last", "linear 3"},
       {6, 4}},
      {"attention",
       {"linear 8", "positions", "transformer heads 2 ff 16 dropout 0.2",
        "residual [layernorm, attention heads 2]", "transformer heads 4 ff 12 causal", "mean",
        "linear 3"},
       {7, 5}},
      {"adapters",
       {"linear 8", "positions", "transformer heads 2 ff 16 dropout 0.2",
        "transformer heads 2 ff 16", "mean", "linear 3"},
       {7, 5},
       {"lora 2 2.*", "lora 3 3.*linear1*"}},
  };
  return models;
}

size_t WidthOfRow(const std::vector<int64_t>& shape) {
  size_t width = 1;
  for (const int64_t extent : shape) width *= static_cast<size_t>(extent);
  return width;
}

struct Bits {
  std::vector<Digest> ends;
  std::vector<MetricSums> sums;
  friend bool operator==(const Bits&, const Bits&) = default;
};

// Twice two epochs, and a gradient at the end.
Bits TrainedOn(LocalTrainer& trainer, const models::ModelSpec& spec, const data::Rows& rows,
               uint32_t micro_batch = 0, std::shared_ptr<const Hooks> hooks = nullptr) {
  const FlatVector x = models::InitialModel(spec, 1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.05), StageFrom(StageEnd{0}, 0.05), StageFrom(StageEnd{1}, 0)};
  plan.stages[2].kind = StageKind::kGradient;
  for (Stage& stage : plan.stages) {
    stage.local.batch_size = 10;
    stage.local.epochs = 2;
    stage.local.shuffle = true;
    stage.local.momentum = 0.9;
    stage.local.clip_norm = 5;
    stage.local.micro_batch = micro_batch;
    stage.hooks = hooks;
  }
  plan.stages[0].correction.mu = 0.1;
  Bits bits;
  for (const StageOutcome& outcome : MustRun(trainer, plan, TaskOf(rows))) {
    bits.ends.push_back(DigestOfValues(outcome.end));
    bits.sums.push_back(outcome.sums);
  }
  return bits;
}

Bits TrainedOn(bool checkpoint, const models::ModelSpec& spec, const data::Rows& rows,
               uint32_t micro_batch = 0, std::shared_ptr<const Hooks> hooks = nullptr) {
  const auto trainer =
      TrainerWith(checkpoint, spec, TaskKind::kClassification, data::FeatureType::kF32);
  return TrainedOn(*trainer, spec, rows, micro_batch, std::move(hooks));
}

class Checkpoint : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Checkpoint, testing::Values(DType::kF32, DType::kF64));

TEST_P(Checkpoint, GivesTheBitsOfAPassThatKeepsAll) {
  for (const Model& model : Models()) {
    const models::ModelSpec spec = SpecOf(model.layers, model.input, 3, GetParam(), model.adapters);
    ASSERT_TRUE(models::SegmentsOf(spec).save()) << model.name;
    const Examples examples = RandomExamples(33, WidthOfRow(model.input), 3, 1);
    for (const uint32_t micro_batch : {0u, 4u}) {
      const Bits all = TrainedOn(false, spec, examples.Classes(), micro_batch);
      EXPECT_EQ(all, TrainedOn(true, spec, examples.Classes(), micro_batch))
          << model.name << ", parts of " << micro_batch;
      EXPECT_NE(all.ends[0], all.ends[1]) << model.name;
    }
  }
}

// Texts of several lengths, with a mask of the padding in each layer of attention.
TEST_P(Checkpoint, GivesTheBitsOfTexts) {
  Sequences text{{{0, 1, 2, 3}, {1, 2, 0, 0}, {2, 0, 0, 0}, {3, 4, 1, 0}, {4, 4, 4, 4}},
                 {1, 0, 1, 2, 2},
                 {4, 2, 1, 3, 4}};
  const data::Rows rows = text.Rows();
  for (const bool words : {true, false}) {
    std::vector<std::string> layers = {"embedding 5 8", "positions",
                                       "transformer heads 2 ff 16 dropout 0.2 causal",
                                       "transformer heads 2 ff 16 causal", "layernorm"};
    if (!words) {
      layers[2] = "transformer heads 2 ff 16 dropout 0.2";
      layers[4] = "mean";
    }
    layers.push_back(words ? "linear 5" : "linear 3");
    const models::ModelSpec spec = SpecOf(layers, {4}, words ? 5 : 3, GetParam());
    ASSERT_TRUE(models::SegmentsOf(spec).save());
    const auto run = [&](bool checkpoint) {
      const auto trainer =
          TrainerWith(checkpoint, spec, words ? TaskKind::kNextToken : TaskKind::kClassification,
                      data::FeatureType::kI32);
      return TrainedOn(*trainer, spec, rows);
    };
    EXPECT_EQ(run(false), run(true)) << words;
  }
}

TEST_P(Checkpoint, GivesTheBitsWithHooks) {
  const Model& model = Models()[1];
  const models::ModelSpec spec = SpecOf(model.layers, model.input, 3, GetParam());
  const Examples examples = RandomExamples(33, WidthOfRow(model.input), 3, 1);
  const FlatVector other = models::InitialModel(spec, 2);
  auto loss = std::make_shared<Hooks>();
  // The representation, the outputs and parameters are used beside the network's own passes.
  loss->loss = [&](const models::Outputs& outputs, StepBatch& batch,
                   std::span<const at::Tensor> w) {
    const at::Tensor apart = outputs.representation - batch.OutputsAt(View(other)).representation;
    return at::cross_entropy_loss(outputs.logits, batch.labels()) +
           0.1 * apart.flatten(1).pow(2).sum(1).mean() + 0.1 * w[0].pow(2).sum();
  };
  auto pair = std::make_shared<Hooks>();
  size_t calls = 0;
  pair->correct = [&](ConstVectorView w, VectorView g, StepGradients& batch) {
    ++calls;
    // The same masks, and statistics that have moved are not read.
    const ConstVectorView again = batch.GradientAt(w);
    EXPECT_EQ(std::memcmp(again.bytes.data(), g.bytes.data(), spec.layout->bytes()), 0);
  };
  for (const auto& hooks : {loss, pair}) {
    const auto run = [&](bool checkpoint) {
      const auto trainer =
          TrainerWith(checkpoint, spec, TaskKind::kClassification, data::FeatureType::kF32);
      const FlatVector x = models::InitialModel(spec, 1);
      LocalPlan plan;
      plan.stages = {StageFrom(View(x), 0.05)};
      plan.stages[0].local.batch_size = 11;
      plan.stages[0].local.epochs = 2;
      plan.stages[0].hooks = hooks;
      const auto outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
      return std::pair(DigestOfValues(outcome.end), outcome.sums);
    };
    EXPECT_EQ(run(false), run(true));
  }
  EXPECT_EQ(calls, 12u);
}

// A lower half that no client trains asks for no gradient, and is not computed again.
TEST_P(Checkpoint, GivesTheBitsOfAHalfThatIsFrozen) {
  const Model& model = Models()[0];
  const models::ModelSpec spec = SpecOf(model.layers, model.input, 3, GetParam());
  const Examples examples = RandomExamples(20, WidthOfRow(model.input), 3, 1);
  const FlatVector x = models::InitialModel(spec, 1);
  for (const bool lower : {true, false}) {
    auto trainable = std::make_shared<std::vector<bool>>(spec.layout->entries().size(), true);
    for (size_t i = 0; i < 4; ++i) (*trainable)[lower ? i : 7 - i] = false;
    const auto run = [&](bool checkpoint) {
      const auto trainer =
          TrainerWith(checkpoint, spec, TaskKind::kClassification, data::FeatureType::kF32);
      LocalPlan plan;
      plan.stages = {StageFrom(View(x), 0.05)};
      plan.stages[0].local.batch_size = 7;
      plan.stages[0].trainable = trainable;
      return DigestOfValues(MustRun(*trainer, plan, TaskOf(examples.Classes()))[0].end);
    };
    EXPECT_EQ(run(false), run(true)) << lower;
  }
}

}  // namespace
}  // namespace macaw::training
