// local.checkpoint takes less memory, by the bytes that LibTorch's allocator has given out; and
// where it is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/training/checkpointing.h"
#include "training/backends.h"

namespace macaw::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Taken {
  size_t most = 0;
  Digest end;
};

// The most bytes in use during a stage of one step, behind one that makes what is kept.
Taken MostOf(bool checkpoint, const models::ModelSpec& spec, const Examples& examples,
             const std::string& precision = "full") {
  const auto trainer =
      TrainerWith(checkpoint, spec, TaskKind::kClassification, data::FeatureType::kF32, precision);
  const FlatVector x = models::InitialModel(spec, 1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  MustRun(*trainer, plan, TaskOf(examples.Classes()));
  CountTensorBytes();
  const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
  return {MostTensorBytes(), DigestOfValues(outcome.end)};
}

// The share that segments take of what a pass that keeps all takes; also in the test's report.
double ShareOf(const Taken& segments, const Taken& all) {
  const double share = static_cast<double>(segments.most) / static_cast<double>(all.most);
  testing::Test::RecordProperty("share", absl::StrCat(share));
  return share;
}

TEST(CheckpointMemory, OfAChainIsThatOfItsSegments) {
  std::vector<std::string> layers;
  for (int i = 0; i < 24; ++i) layers.insert(layers.end(), {"linear 64", "tanh"});
  layers.push_back("linear 4");
  const models::ModelSpec spec = SpecOf(layers, {64}, 4, DType::kF32);
  const Examples examples = RandomExamples(256, 64, 4, 3);
  const Taken all = MostOf(false, spec, examples), segments = MostOf(true, spec, examples);
  EXPECT_EQ(segments.end, all.end);
  EXPECT_GT(all.most, 24u * 256 * 64 * sizeof(float)) << "each tanh keeps its output";
  EXPECT_LT(ShareOf(segments, all), 0.55);
}

TEST(CheckpointMemory, OfBlocksIsThatOfTheirInputs) {
  std::vector<std::string> layers;
  layers.emplace_back("positions");
  for (int i = 0; i < 8; ++i) layers.push_back("transformer heads 4 ff 64 dropout 0.1");
  layers.emplace_back("mean");
  layers.emplace_back("linear 4");
  const models::ModelSpec spec = SpecOf(layers, {16, 16}, 4, DType::kF32);
  const Examples examples = RandomExamples(64, 16 * 16, 4, 3);
  const Taken all = MostOf(false, spec, examples), segments = MostOf(true, spec, examples);
  EXPECT_EQ(segments.end, all.end);
  EXPECT_LT(ShareOf(segments, all), 0.25);
}

TEST(CheckpointMemory, IsLessInBfloat16) {
  std::vector<std::string> layers;
  layers.emplace_back("positions");
  for (int i = 0; i < 8; ++i) layers.push_back("transformer heads 4 ff 64");
  layers.emplace_back("mean");
  layers.emplace_back("linear 4");
  const models::ModelSpec spec = SpecOf(layers, {16, 16}, 4, DType::kF32);
  const Examples examples = RandomExamples(64, 16 * 16, 4, 3);
  const Taken all = MostOf(false, spec, examples, "bf16"),
              segments = MostOf(true, spec, examples, "bf16");
  EXPECT_EQ(segments.end, all.end) << "what is computed again is cast again";
  EXPECT_NE(segments.end, MostOf(true, spec, examples).end);
  EXPECT_LT(ShareOf(segments, all), 0.35);
}

TrainerSetup SetupWith(std::vector<std::string> layers) {
  TrainerSetup setup;
  setup.spec = SpecOf(std::move(layers), {32}, 4, DType::kF32);
  setup.task = TaskKind::kClassification;
  setup.backend.name = "auto";
  setup.local.checkpoint = true;
  return setup;
}

const std::vector<std::string> kDeep = {"linear 32", "relu", "linear 32", "relu",
                                        "linear 32", "relu", "linear 4"};

TEST(CheckpointChoice, IsTrainedByLibTorch) {
  TrainerSetup setup = SetupWith(kDeep);
  EXPECT_THAT(*BackendsFor(setup), ElementsAre("torch"));
  setup.local.checkpoint = false;
  EXPECT_THAT(*BackendsFor(setup), ElementsAre("fused"));
}

TEST(CheckpointChoice, IsRefusedWhereItHasNoEffect) {
  const auto refused = [](const TrainerSetup& setup) {
    return std::string(BackendsFor(setup).status().message());
  };
  EXPECT_EQ(refused(SetupWith(kDeep)), "");
  EXPECT_THAT(refused(SetupWith({"linear 4"})), HasSubstr("saves nothing on this model"));
  TrainerSetup setup = SetupWith(kDeep);
  setup.backend.name = "fused";
  EXPECT_THAT(refused(setup), HasSubstr("local.checkpoint"));
  setup.backend.name = "process";
  EXPECT_THAT(refused(setup), HasSubstr("gradient_checkpointing_enable"));
}

}  // namespace
}  // namespace macaw::training
