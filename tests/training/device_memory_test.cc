// What the trainer of a device does where its memory ends.
#include <gmock/gmock.h>

#include "tests/training/device_cohort.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/device/device_trainer.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

TEST(DeviceTrainer, TakesFewerTurnsWhereMemoryEnds) {
  const Cohort cohort(Everything());
  const auto roomy = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *roomy);
  const Outcomes expected = RunAll(*trainer, cohort.turns());
  FakeDeviceOptions options;
  options.memory = roomy->most_used() / 2;
  const auto tight = DeviceOf(options);
  const auto small = DeviceTrainerOf(cohort.Setup(), *tight);
  ExpectSame(RunAll(*small, cohort.turns()), expected);
  EXPECT_LT(small->turns_at_once(), cohort.turns().size());
  // An allocation that fails once, for each allocation of the work.
  for (uint64_t nth = 0; nth < 6; ++nth) {
    const auto device = TeamsOf(1);
    const auto again = DeviceTrainerOf(cohort.Setup(), *device);
    device->FailAllocations(nth);
    ExpectSame(RunAll(*again, cohort.turns()), expected);
    EXPECT_EQ(again->turns_at_once(), 3) << nth;
  }
}

TEST(DeviceTrainer, RatesFewerRowsAtOnceWhereMemoryEnds) {
  RandomRun random(Everything(), 3);
  const FlatVector model = random.Vector(0.2);
  const data::Rows rows = random.Rows(300);
  const auto rate = [&](DeviceTrainer& trainer) {
    return trainer.Evaluate(View(model), rows, 0, rows.size(), 64);
  };
  const auto roomy = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(random.Setup(), *roomy);
  const auto sums = rate(*trainer);
  ASSERT_TRUE(sums.ok());
  // It takes a third of the memory that there is.
  FakeDeviceOptions options;
  options.memory = roomy->most_used();
  const auto tight = DeviceOf(options);
  const auto small = DeviceTrainerOf(random.Setup(), *tight);
  EXPECT_EQ(*rate(*small), *sums);
  EXPECT_LT(tight->most_used(), options.memory / 2);
  const auto none = DeviceTrainerOf(random.Setup(), *tight);
  tight->FailAllocations(0, 1000);
  EXPECT_TRUE(absl::IsResourceExhausted(rate(*none).status()));

  // Allocations that fail, one or two in a row. Outcomes stay as they were.
  LocalPlan plan;
  plan.stages = {StageFrom(View(model), 0.1)};
  const ClientTask task = TaskOf(random.Rows(20));
  const auto expected = BytesOf(MustRun(*trainer, plan, task));
  for (uint64_t nth = 0; nth < 6; ++nth) {
    const auto device = TeamsOf(1);
    const auto again = DeviceTrainerOf(random.Setup(), *device);
    const auto outcomes = MustRun(*again, plan, task);
    device->FailAllocations(nth / 2, 1 + nth % 2);
    const auto same = rate(*again);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(*same, *sums);
    EXPECT_TRUE(BytesOf(outcomes) == expected);
  }
}

TEST(DeviceTrainer, CountsTheOptimizersVectorsWhenItSharesMemoryOut) {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 500"}, {200}, 500, DType::kF32);
  FakeDeviceOptions options;
  options.memory = 90 * setup.spec.layout->bytes();  // 30 vectors at first
  const auto device = DeviceOf(options);
  const auto turns = [&](const std::string& optimizer, double momentum) {
    setup.local.optimizer = optimizer;
    setup.local.momentum = momentum;
    return DeviceTrainerOf(setup, *device)->turns_at_once();
  };
  EXPECT_EQ(turns("sgd", 0), 7);  // four vectors, and activations
  EXPECT_EQ(turns("sgd", 0.9), 5);
  EXPECT_EQ(turns("adam", 0), 4);
  EXPECT_EQ(turns("adamw", 0), 4);
}

TEST(DeviceTrainer, SaysWhenNotEvenOneClientFits) {
  const Cohort cohort(Everything(), 2);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  device->FailAllocations(0, 1000);
  for (const auto& outcome : RunAll(*trainer, cohort.turns())) {
    EXPECT_TRUE(absl::IsResourceExhausted(outcome.status()));
    EXPECT_THAT(outcome.status().message(), HasSubstr("client 10"));
    EXPECT_FALSE(IsClientFault(outcome.status()));
  }
  device->FailAllocations(0, 0);
  EXPECT_TRUE(RunAll(*trainer, cohort.turns())[1].ok());  // memory is there again
}

}  // namespace
}  // namespace macaw::training
