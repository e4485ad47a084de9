// What the tests' device promises, and what a trainer on a device has that one on the host has not.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/training/sequences.h"
#include "tests/training/testing.h"
#include "training/torch/device.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

TEST(TestDevice, RefusesATensorOfTheHostBesideItsOwn) {
  const at::Tensor here = at::ones({3});
  const at::Tensor there = here.to(at::Device("test:0"));
  EXPECT_EQ((there + there).sum().item<float>(), 6);
  EXPECT_EQ((there * at::scalar_tensor(2.0)).sum().item<float>(), 6) << "a number may be anywhere";
  EXPECT_THROW(there + here, c10::Error);
  EXPECT_THROW(at::cat({there, here}), c10::Error);
}

c10::Stream NewStream() {
  const at::Device device("test:0");
  return c10::impl::getDeviceGuardImpl(device.type())->getStreamFromGlobalPool(device);
}

TEST(TestDevice, RefusesATensorOnAnotherStream) {
  const at::Tensor there = at::ones({3}, at::Device("test:0"));
  {
    const c10::StreamGuard on(NewStream());
    EXPECT_THROW(there + there, c10::Error);
    EXPECT_THROW(there.to(at::kCPU), c10::Error);
    EXPECT_EQ(at::ones({3}, at::Device("test:0")).sum().item<float>(), 3);
  }
  EXPECT_EQ((there + there).sum().item<float>(), 6);
}

TEST(TestDeviceDeathTest, CrashesWhoeverReadsItsMemoryInPlace) {
  const at::Tensor there = at::ones({3}, at::Device("test:0"));
  EXPECT_DEATH(std::fprintf(stderr, "%f", there.const_data_ptr<float>()[0]), "");
}

TrainerSetup SetupOn(const std::vector<std::string>& devices) {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
  setup.task = TaskKind::kClassification;
  setup.backend = {.name = "torch", .devices = devices};
  return setup;
}

TEST(DevicesOfLibTorch, AreTakenInTurn) {
  TrainerSetup setup = SetupOn({"cpu", "test:0"});
  for (uint32_t lane = 0; lane < 4; ++lane) {
    setup.lane = lane;
    EXPECT_EQ(OpenDevice(setup)->is_cpu(), lane % 2 == 0);
  }
  setup.lane = 0;
  setup.backend.program.first_slot = 1;  // of the second process of a host
  EXPECT_FALSE(OpenDevice(setup)->is_cpu());
  setup.backend.name = "cuda";
  EXPECT_TRUE(OpenDevice(setup)->is_cpu()) << "its devices are not those of stages with hooks";
}

// The tests' device refuses tensors of other streams, so all that a trainer does is on its own one.
TEST(DevicesOfLibTorch, HaveAStreamForEachTrainer) {
  const TrainerSetup setup = SetupOn({"test:0"});
  const Examples examples = RandomExamples(40, 4, 3, 5);
  const FlatVector start = models::InitialModel(setup.spec, 2);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1)};
  plan.stages[0].local.batch_size = 3;
  plan.stages[0].local.epochs = 3;
  const auto train = [&](LocalTrainer& trainer) {
    return DigestOfValues(MustRun(trainer, plan, TaskOf(examples.Classes()))[0].end);
  };
  const c10::StreamId first = NewStream().id();
  const auto one = *TorchBackend().MakeTrainer(setup), two = *TorchBackend().MakeTrainer(setup);
  EXPECT_EQ(NewStream().id(), first + 3) << "two were taken";
  const Digest alone = train(*one);
  Digest beside;
  std::thread other([&] { beside = train(*one); });
  EXPECT_EQ(train(*two), alone);
  other.join();
  EXPECT_EQ(beside, alone) << "from any thread";
  const at::Device device("test:0");
  EXPECT_EQ(c10::impl::getDeviceGuardImpl(device.type())->getStream(device).id(), 0)
      << "what a thread was on before";
  EXPECT_FALSE(OwnStream(at::kCPU).has_value());
}

TEST(DevicesOfLibTorch, ThatAreNotThereAreNamed) {
  const auto error = [](const char* name) {
    return std::string(TorchBackend().MakeTrainer(SetupOn({name})).status().message());
  };
  EXPECT_THAT(error("gpu0"), HasSubstr("\"gpu0\" is no device that LibTorch trains on"));
  EXPECT_THAT(error("test:1"), HasSubstr("there is no test:1"));
  EXPECT_THAT(error("xpu:0"), HasSubstr("no device of the kind \"xpu\""));
  EXPECT_FALSE(TorchBackend().Supports(SetupOn({"gpu0"})).ok());
  EXPECT_FALSE(TorchBackend().Supports(SetupOn({"meta"})).ok());
  EXPECT_FALSE(TorchBackend().Supports(SetupOn({"cpu:3"})).ok());
  EXPECT_TRUE(TorchBackend().Supports(SetupOn({"cuda:0"})).ok()) << "whether it is here or not";
}

TEST(DevicesOfLibTorch, AreInTheProfile) {
  EXPECT_EQ(TorchBackend().Profile(SetupOn({"test:0"}))->instruction_set, "test");
  // Which of them trains a client is a matter of time.
  const auto mixed = TorchBackend().Profile(SetupOn({"test:0", "cpu"})).status();
  EXPECT_THAT(std::string(mixed.message()), HasSubstr("give other bits"));
}

// A turn of two stages with all that a step may have, on the host and on the device.
std::vector<double> EndOn(const BackendChoice& choice, const models::ModelSpec& spec, TaskKind task,
                          data::FeatureType type, const data::Rows& rows) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.feature_type = type;
  setup.dtype = DType::kF64;
  setup.backend = choice;
  const auto trainer = *TorchBackend().MakeTrainer(setup);
  const FlatVector x = models::InitialModel(spec, 4);
  Stage gradient = StageFrom(View(x), 0);
  gradient.kind = StageKind::kGradient;
  Stage train = StageFrom(View(x), 0.05);
  train.local.epochs = 2;
  train.local.batch_size = 3;
  train.local.optimizer = "adamw";
  train.local.epsilon = 1e-3;  // a gradient that is zero but for rounding moves nothing
  train.local.weight_decay = 0.1;
  train.local.clip_norm = 0.7;
  train.correction.mu = 0.2;
  train.correction.v = {{.point = StageEnd{0}, .factor = -0.5}};
  LocalPlan plan;
  plan.stages = {gradient, train};
  const std::vector<StageOutcome> outcomes = MustRun(*trainer, plan, TaskOf(rows));
  std::vector<double> end(outcomes[1].end.As<double>().begin(), outcomes[1].end.As<double>().end());
  for (const double sum : outcomes[1].sums) end.push_back(sum);
  const auto sums = trainer->Evaluate(outcomes[1].end, rows, 0, rows.size(), 4);
  EXPECT_TRUE(sums.ok()) << sums.status();
  end.insert(end.end(), sums->begin(), sums->end());
  return end;
}

void ExpectAgreement(const models::ModelSpec& spec, TaskKind task, data::FeatureType type,
                     const data::Rows& rows) {
  const std::vector<double> host = EndOn({.name = "torch"}, spec, task, type, rows);
  const std::vector<double> device = EndOn(TorchChoice(), spec, task, type, rows);
  ASSERT_EQ(host.size(), device.size());
  for (size_t i = 0; i < host.size(); ++i) ASSERT_NEAR(device[i], host[i], 1e-9) << i;
}

TEST(DevicesOfLibTorch, AgreeWithTheHostOnImages) {
  const Examples examples = RandomExamples(10, 2 * 8 * 8, 3, 9);
  for (const std::vector<std::string>& layers : std::vector<std::vector<std::string>>{
           {"conv 4 3 pad 1", "relu", "maxpool 2", "flatten", "dropout 0.3", "linear 3"},
           {"conv 4 3", "batchnorm", "relu", "avgpool 2", "flatten", "linear 3"},
           {"conv 4 3", "groupnorm 2", "tanh", "globalavgpool", "flatten", "linear 3"}}) {
    ExpectAgreement(SpecOf(layers, {2, 8, 8}, 3, DType::kF64), TaskKind::kClassification,
                    data::FeatureType::kF32, examples.Classes());
  }
}

TEST(DevicesOfLibTorch, AgreeWithTheHostOnTextsOfSeveralLengths) {
  Sequences text{{{0, 1, 2, 3}, {1, 2, 0, 0}, {2, 0, 0, 0}, {3, 4, 1, 0}, {4, 4, 4, 4}},
                 {4, 0, 1, 2, 3},
                 {4, 2, 1, 3, 4}};
  const data::Rows rows = text.Rows();
  const std::string block = "transformer heads 2 ff 8 dropout 0.2";
  for (const std::vector<std::string>& layers : std::vector<std::vector<std::string>>{
           {"embedding 5 4", "lstm 6 layers 2", "linear 5"},
           {"embedding 5 4", "gru 6", "linear 5"},
           {"embedding 5 4", "positions", block + " causal", "layernorm", "linear 5"}}) {
    ExpectAgreement(SpecOf(layers, {4}, 5, DType::kF64), TaskKind::kNextToken,
                    data::FeatureType::kI32, rows);
  }
  for (const char* end : {"last", "mean"}) {
    ExpectAgreement(
        SpecOf({"embedding 5 4", "positions", block, end, "linear 5"}, {4}, 5, DType::kF64),
        TaskKind::kClassification, data::FeatureType::kI32, rows);
  }
}

}  // namespace
}  // namespace macaw::training
