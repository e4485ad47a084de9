// The trainer of a device against the eager one, on what the fused trainer cannot do.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/training/device_testing.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

TEST(DeviceAgreement, WithTheEagerTrainerOnNormsAndResidualBlocks) {
  const std::vector<std::vector<std::string>> models = {
      {"conv 6 3", "groupnorm 3", "relu", "globalavgpool", "flatten", "linear 5"},
      {"groupnorm 1", "conv 4 3 stride 2", "groupnorm 4", "tanh", "flatten", "linear 5"},
      {"conv 4 3 pad 1 nobias", "groupnorm 2", "relu", "block 4", "block 6 stride 2",
       "globalavgpool", "flatten", "linear 5"},
      {"block 4 groups 1", "dropout 0.25", "block 4", "maxpool 2", "flatten", "linear 5"},
  };
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "model " << i);
    RandomRun random(SpecOf(models[i], {2, 9, 8}, 5, DType::kF32), i);
    const TrainerSetup setup = random.Setup();
    absl::StatusOr<std::unique_ptr<LocalTrainer>> eager = TorchBackend().MakeTrainer(setup);
    ASSERT_TRUE(eager.ok()) << eager.status();
    const auto device = TeamsOf(1);
    const auto trainer = DeviceTrainerOf(setup, *device);
    const FlatVector start = models::InitialModel(random.spec(), i), zero(random.spec().layout);
    const ClientTask task = TaskOf(random.Rows(17));
    LocalPlan plan;
    plan.stages.push_back(StageFrom(View(start), 0.05));
    plan.stages[0].local.batch_size = 6;
    plan.stages[0].local.epochs = 2;
    plan.stages[0].local.momentum = 0.5;
    plan.stages.push_back(plan.stages[0]);
    plan.stages[1].kind = StageKind::kGradient;
    plan.stages[1].start = StageEnd{0};
    const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(**eager, plan, task);
    EXPECT_LE(ErrorOf(ours[0].end, theirs[0].end, View(start)), 1e-5);
    EXPECT_LE(ErrorOf(ours[1].end, theirs[1].end, View(zero)), 2e-5);
    for (size_t k = 0; k < ours[0].sums.size(); ++k) {
      EXPECT_NEAR(ours[0].sums[k], theirs[0].sums[k], 1e-5 * theirs[0].sums[k]);
    }
  }
}

// With dropout, crops and flips, over stages that follow each other. Where the fused trainer can be
// asked, or bits be compared, another test is stricter (device_agreement_test.cc); LibTorch's sums
// of some of these networks differ by more than that.
TEST(DeviceAgreement, WithTheEagerTrainerOnEveryOptimizer) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    const TrainerSetup setup = random.Setup();
    const auto eager = TorchBackend().MakeTrainer(setup);
    ASSERT_TRUE(eager.ok()) << eager.status();
    const auto device = TeamsOf(1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    const FlatVector start = random.Vector(0.2), other = random.Vector(0.1);
    const ClientTask task = TaskOf(random.Rows(1 + random.Below(30)));
    LocalPlan plan;
    plan.stages.push_back(random.AnyStage(View(start), {View(other)}, task.train));
    plan.stages.push_back(random.AnyStage(View(start), {View(other)}, task.train));
    for (Stage& stage : plan.stages) stage.kind = StageKind::kTrain;
    plan.stages[1].start = StageEnd{0};
    const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(**eager, plan, task);
    for (size_t i = 0; i < ours.size(); ++i) {
      const LocalConfig& local = plan.stages[i].local;
      seen.insert(local.optimizer);
      SCOPED_TRACE(local.optimizer);
      EXPECT_EQ(ours[i].steps, theirs[i].steps);
      EXPECT_EQ(std::isnan(ours[i].a_norm1), std::isnan(theirs[i].a_norm1));
      EXPECT_LE(ErrorOf(ours[i].end, theirs[i].end, View(start)), 1e-4);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"adam", "adamw", "sgd"}));
}

}  // namespace
}  // namespace macaw::training
