// The trainer on this machine's GPU, where there is one, has the bits of the host's copy; and what
// the back end says where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "testing/test_devices.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/cuda/cuda_backend.h"
#include "training/cuda/device_names.h"
#include "training/cuda/train_clients.h"
#include "training/device/kernels.h"

namespace macaw::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An outcome, kept beyond its trainer's next call.
struct Kept {
  std::string error;
  std::vector<std::byte> bytes;  // of all ends
  std::vector<double> sums;
  uint64_t steps = 0;
  friend bool operator==(const Kept&, const Kept&) = default;
};

Kept Keep(const absl::StatusOr<std::vector<StageOutcome>>& outcomes) {
  Kept kept;
  if (!outcomes.ok()) {
    kept.error = outcomes.status().ToString();
    return kept;
  }
  for (const StageOutcome& outcome : *outcomes) {
    const std::span<const std::byte> end = outcome.end.view().bytes;
    kept.bytes.insert(kept.bytes.end(), end.begin(), end.end());
    for (const double sum : outcome.sums) kept.sums.push_back(sum);
    kept.steps += outcome.steps;
  }
  return kept;
}

std::vector<device::HostKernelEntry> HostKernels() {
  const auto kernels = DeviceTrainerKernels();
  return {kernels.begin(), kernels.end()};
}

class TrainerOnA : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    made_ = testing_support::MakeTestDevice(GetParam(), HostKernels(), TrainerCudaKernels());
    if (made_.device == nullptr) GTEST_SKIP() << made_.skip;
  }
  device::Device& device() { return *made_.device; }

  // The same turns on this device and on one thread of the host.
  void ExpectSameBits(RandomRun& random, size_t clients) {
    const TrainerSetup setup = random.Setup();
    const FlatVector start = random.Vector(0.2), other = random.Vector(0.2);
    std::vector<ClientTask> tasks(clients);
    std::vector<LocalPlan> plans(clients);
    std::vector<Turn> turns;
    for (size_t i = 0; i < clients; ++i) {
      tasks[i].client = ClientId(i);
      tasks[i].train = random.Rows(1 + random.Below(60));
      plans[i].stages.push_back(
          random.AnyStage(View(start), {View(start), View(other)}, tasks[i].train));
      turns.push_back({&plans[i], &tasks[i]});
    }
    const auto train = [&](device::Device& on) {
      std::vector<Kept> all(clients);
      const auto trainer = DeviceTrainerOf(setup, on);
      for (size_t at = 0; at < turns.size();) {
        for (const TurnOutcome& outcomes : trainer->RunMany(std::span(turns).subspan(at)))
          all[at++] = Keep(outcomes);
      }
      return all;
    };
    const auto host = DeviceOf();
    const std::vector<Kept> expected = train(*host), actual = train(device());
    for (size_t i = 0; i < clients; ++i) {
      EXPECT_EQ(actual[i].error, expected[i].error) << i;
      EXPECT_EQ(actual[i].sums, expected[i].sums) << i;
      EXPECT_EQ(actual[i].steps, expected[i].steps) << i;
      EXPECT_TRUE(actual[i].bytes == expected[i].bytes) << i;
    }
  }

 private:
  testing_support::TestDevice made_;
};

TEST_P(TrainerOnA, HasTheBitsOfTheHostOnRandomModelsAndStages) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    RandomRun random(seed);
    ExpectSameBits(random, 3 + seed % 4);
  }
}

TEST_P(TrainerOnA, HasTheBitsOfTheHostOnEveryOperation) {
  for (const models::ModelSpec& spec : EveryOperation()) {
    SCOPED_TRACE(testing::Message() << spec.layers.size() << " layers");
    RandomRun random(spec, 5);
    ExpectSameBits(random, 4);
  }
}

TEST_P(TrainerOnA, HasTheBitsOfTheHostOnLeNet5) {
  ModelConfig config;
  config.name = "lenet5";
  config.input_shape = {1, 28, 28};
  config.classes = 10;
  RandomRun random(*models::BuildSpec(config, DType::kF32), 1);
  ExpectSameBits(random, 2);
}

INSTANTIATE_TEST_SUITE_P(Device, TrainerOnA,
                         ::testing::ValuesIn(testing_support::TestDeviceNames()),
                         [](const auto& info) { return info.param; });

TEST(ChooseGpus, TakesWhatTheFileNames) {
  using Names = std::vector<std::string>;
  EXPECT_THAT(*ChooseGpus(Names{}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(*ChooseGpus(Names{"cuda:2", "cuda:0"}, 3), ElementsAre(2, 0));
  const auto error = [](const Names& names) {
    return std::string(ChooseGpus(names, 2).status().message());
  };
  EXPECT_THAT(error({"gpu0"}), HasSubstr("\"gpu0\""));
  EXPECT_THAT(error({"cuda:"}), HasSubstr("\"cuda:\""));
  EXPECT_THAT(error({"cuda:-1"}), HasSubstr("\"cuda:-1\""));
  EXPECT_THAT(error({"cuda:2"}), HasSubstr("there is no cuda:2"));
  EXPECT_THAT(error({"cuda:1", "cuda:1"}), HasSubstr("twice"));
}

TEST(CudaBackend, SaysWhyItCannotTrainHere) {
  const auto gpus = device::ListCudaDevices();
  if (gpus.ok()) GTEST_SKIP() << "there is a GPU here: " << gpus->front().name;
  TrainerSetup setup;
  ModelConfig config;
  config.name = "logistic";
  config.input_shape = {60};
  config.classes = 10;
  setup.spec = *models::BuildSpec(config, DType::kF32);
  const Backend& backend = CudaBackend();
  EXPECT_TRUE(backend.Supports(setup).ok());
  EXPECT_EQ(backend.Profile(setup).status(), gpus.status());
  EXPECT_EQ(backend.LanesFor(setup, 4).status(), gpus.status());
  EXPECT_EQ(backend.MakeTrainer(setup).status(), gpus.status());
  EXPECT_EQ(backend.Report(), gpus.status().message());
}

TEST(CudaBackend, SharesItsTrainersOutToTheGpus) {
  const auto gpus = device::ListCudaDevices();
  if (!gpus.ok()) GTEST_SKIP() << gpus.status().message();
  RandomRun random(1);
  TrainerSetup setup = random.Setup();
  setup.backend.name = "cuda";
  const Backend& backend = CudaBackend();
  EXPECT_EQ(*backend.LanesFor(setup, 512), 2 * gpus->size());
  EXPECT_EQ(*backend.LanesFor(setup, 1), 1);
  EXPECT_EQ(backend.Profile(setup)->trainer, "cuda");
  EXPECT_THAT(backend.Report(), HasSubstr(gpus->front().name));
  setup.lane = 1;
  EXPECT_TRUE(backend.MakeTrainer(setup).ok());
}

}  // namespace
}  // namespace macaw::training
