// What the tests' device promises, and what a trainer on a device has that one on the host has not.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/training/testing.h"
#include "training/torch/device.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

TEST(TestDevice, RefusesATensorOfTheHostBesideItsOwn) {
  const at::Tensor here = at::ones({3});
  const at::Tensor there = here.to(at::Device("privateuseone:0"));
  EXPECT_EQ((there + there).sum().item<float>(), 6);
  EXPECT_EQ((there * at::scalar_tensor(2.0)).sum().item<float>(), 6) << "a number may be anywhere";
  EXPECT_THROW(there + here, c10::Error);
  EXPECT_THROW(at::cat({there, here}), c10::Error);
}

TEST(TestDeviceDeathTest, CrashesWhoeverReadsItsMemoryInPlace) {
  const at::Tensor there = at::ones({3}, at::Device("privateuseone:0"));
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
  TrainerSetup setup = SetupOn({"cpu", "privateuseone:0"});
  for (uint32_t lane = 0; lane < 4; ++lane) {
    setup.lane = lane;
    EXPECT_EQ(OpenDevice(setup)->is_cpu(), lane % 2 == 0);
  }
  setup.backend.name = "cuda";
  EXPECT_TRUE(OpenDevice(setup)->is_cpu()) << "its devices are not those of stages with hooks";
}

TEST(DevicesOfLibTorch, ThatAreNotThereAreNamed) {
  const auto error = [](const char* name) {
    return std::string(TorchBackend().MakeTrainer(SetupOn({name})).status().message());
  };
  EXPECT_THAT(error("gpu0"), HasSubstr("\"gpu0\" is no device of LibTorch"));
  EXPECT_THAT(error("privateuseone:1"), HasSubstr("there is no privateuseone:1"));
  EXPECT_THAT(error("xpu:0"), HasSubstr("no device of the kind \"xpu\""));
  EXPECT_FALSE(TorchBackend().Supports(SetupOn({"gpu0"})).ok());
  EXPECT_TRUE(TorchBackend().Supports(SetupOn({"cuda:0"})).ok()) << "whether it is here or not";
}

TEST(DevicesOfLibTorch, AreInTheProfile) {
  EXPECT_EQ(TorchBackend().Profile(SetupOn({"privateuseone:0"}))->instruction_set, "privateuseone");
}

}  // namespace
}  // namespace macaw::training
