// How a device's trainer cuts its work up: launches of bounded length, uploads in pieces, memory
// that is taken when it is needed. The bits do not depend on any of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "core/work_counter.h"
#include "tests/training/device_cohort.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/device/work_estimate.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

// A launch for about so many rows of a job that is alone.
double SecondsFor(const TrainerSetup& setup, double rows) {
  const auto model = ondevice::CompiledModel::Compile(setup.spec, setup.local.batch_size);
  const ondevice::LaunchSize size =
      ondevice::SizeOfLaunch(model->program, model->row_work, 1, 1, 1);
  return (rows + size.step_rows) / size.most_rows;
}

// Networks with every operation; clients with momentum, Adam, clips, dropout, moves of the rows,
// corrections, several stages, gradient and loss stages, full batches, and without rows.
TEST(DeviceLaunches, GiveTheSameBitsHoweverTheyAreCut) {
  for (const models::ModelSpec& spec : EveryOperation()) {
    const Cohort cohort(spec, 6);
    const auto whole = TeamsOf(1);
    const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *whole), cohort.turns());
    const uint64_t uncut = whole->launches();
    // One pass a job, and some.
    for (const double seconds :
         {0.0, SecondsFor(cohort.Setup(), 20), SecondsFor(cohort.Setup(), 45)}) {
      SCOPED_TRACE(testing::Message() << seconds << " s");
      const auto device = TeamsOf(3);
      const auto trainer = DeviceTrainerOf(cohort.Setup(), *device, {.launch_seconds = seconds});
      ExpectSame(RunAll(*trainer, cohort.turns()), expected);
      EXPECT_GT(device->launches(), uncut);
    }
  }
}

// Tiles in shared memory; what a block has there does not outlive a launch.
TEST(DeviceLaunches, GiveTheSameBitsWithTheThreadsOfAGpu) {
  const Cohort cohort(Everything(), 1);
  const auto one = TeamsOf(1), many = TeamsOf(256);
  const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *one), cohort.turns());
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *many, {.launch_seconds = 0});
  ExpectSame(RunAll(*trainer, cohort.turns()), expected);
}

TEST(DeviceLaunches, OfRandomRunsGiveTheSameBits) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    const TrainerSetup setup = random.Setup();
    const FlatVector start = random.Vector(0.2), other = random.Vector(0.2);
    std::vector<ClientTask> tasks(3);
    std::vector<LocalPlan> plans(3);
    std::vector<Turn> turns;
    for (size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].client = ClientId(i);
      tasks[i].train = random.Rows(1 + random.Below(40));
      plans[i].stages.push_back(
          random.AnyStage(View(start), {View(start), View(other)}, tasks[i].train));
      turns.push_back({&plans[i], &tasks[i]});
    }
    const auto device = TeamsOf(1), cut = TeamsOf(1);
    const Outcomes expected = RunAll(*DeviceTrainerOf(setup, *device), turns);
    const DeviceLimits limits{.launch_seconds = SecondsFor(setup, static_cast<double>(seed)),
                              .upload_bytes = 100 * seed};
    ExpectSame(RunAll(*DeviceTrainerOf(setup, *cut, limits), turns), expected);
  }
}

TEST(DeviceLaunches, OfEvaluationsGiveTheSameSums) {
  RandomRun random(Everything(), 3);
  TrainerSetup setup = random.Setup();
  setup.metrics.confusion = true;
  const FlatVector model = random.Vector(0.2);
  const data::Rows rows = random.Rows(150);
  const auto device = TeamsOf(1), cut = TeamsOf(1);
  const auto sums = DeviceTrainerOf(setup, *device)->Evaluate(View(model), rows, 0, 150, 7);
  ASSERT_TRUE(sums.ok()) << sums.status();
  const uint64_t uncut = device->launches();
  const auto trainer = DeviceTrainerOf(setup, *cut, {.launch_seconds = 0, .upload_bytes = 200});
  EXPECT_EQ(*trainer->Evaluate(View(model), rows, 0, 150, 7), *sums);
  EXPECT_GT(cut->launches(), uncut);
}

TEST(DeviceLaunches, CountBatchesWhileAClientIsUnderWay) {
  CountedClient one({.launch_seconds = 0});
  one.plan.stages[0].local.steps = 2000;
  std::atomic<bool> over = false;
  uint64_t seen_between = 0;
  {
    const std::jthread watcher([&] {
      while (!over) {
        const uint64_t done = one.work.done();
        if (done > 0 && done < 2000) seen_between = done;
        std::this_thread::yield();
      }
    });
    MustRun(*one.trainer, one.plan, one.task());
    over = true;
  }
  EXPECT_GT(seen_between, 0u);
  EXPECT_EQ(one.work.done(), 2000u);
  EXPECT_EQ(one.device->launches(), 2000u);
}

// A step of many passes is work, too.
TEST(DeviceLaunches, CountPassesOfAFullBatch) {
  RandomRun random(SpecOf({"linear 3"}, {4}, 3, DType::kF32), 2);
  WorkCounter work;
  TrainerSetup setup = random.Setup();
  setup.work = &work;
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(setup, *device, {.launch_seconds = 0});
  const FlatVector start = random.Vector(0.1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1)};
  plan.stages[0].kind = StageKind::kGradient;
  MustRun(*trainer, plan, TaskOf(random.Rows(1000)));
  EXPECT_EQ(work.done(), 8u);  // 128 rows each
  EXPECT_EQ(device->launches(), 8u);
}

TEST(DeviceLaunches, EndEarlyWhenTheWorkIsGivenUp) {
  CountedClient one({.launch_seconds = 0});
  one.plan.stages[0].local.steps = 1000000;
  {
    const std::jthread stopper([&] {
      while (one.work.done() == 0) std::this_thread::yield();
      one.work.GiveUp();
    });
    const absl::Status status = one.trainer->Run(one.plan, one.task()).status();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_FALSE(IsClientFault(status));
  }
  EXPECT_LT(one.work.done(), 1000000u);
  one.work.GiveUp(false);
  one.plan.stages[0].local.steps = 3;
  MustRun(*one.trainer, one.plan, one.task());
}

TEST(DeviceLaunches, AreAboutASecondByTheEstimate) {
  // Multiply-adds of a step in `bench/gpu`'s models, forward and back: 22.8 and 498 million for
  // batches of 20 and 10.
  const auto row = [](const std::string& name, std::vector<int64_t> shape) {
    ModelConfig config;
    config.name = name;
    config.input_shape = std::move(shape);
    config.classes = 10;
    const auto spec = models::BuildSpec(config, DType::kF32);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return ondevice::CompiledModel::Compile(*spec, 20)->row_work;
  };
  const uint64_t lenet = row("lenet5", {1, 28, 28});
  EXPECT_GT(lenet, 22'800'000u / 20);
  EXPECT_LT(lenet, 2 * 22'800'000u / 20);
  EXPECT_GT(row("logistic", {784}), 2u * 7840);
  const models::ModelSpec spec = SpecOf({"linear 10"}, {784}, 10, DType::kF32);
  const auto model = ondevice::CompiledModel::Compile(spec, 20);
  const auto alone = ondevice::SizeOfLaunch(model->program, model->row_work, 1, 264, 132),
             waves = ondevice::SizeOfLaunch(model->program, model->row_work, 1, 528, 132);
  EXPECT_EQ(waves.most_rows, alone.most_rows / 2);
  EXPECT_EQ(ondevice::SizeOfLaunch(model->program, uint64_t{1} << 60, 1, 9, 1).most_rows, 1u);
}

TEST(DeviceUploads, GiveTheSameBitsInPiecesOfAnySize) {
  for (const models::ModelSpec& spec : EveryOperation()) {
    const Cohort cohort(spec, 5);
    const auto whole = TeamsOf(1);
    const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *whole), cohort.turns());
    for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{20000}}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes");
      const auto device = TeamsOf(1);
      ExpectSame(RunAll(*DeviceTrainerOf(cohort.Setup(), *device, {.upload_bytes = bytes}),
                        cohort.turns()),
                 expected);
    }
  }
}

// Page-locked memory of uploads, for clients with so many rows of 3 kB.
TEST(DeviceUploads, PageLockNoMoreThanAPiece) {
  RandomRun random(SpecOf({"linear 3"}, {784}, 3, DType::kF32), 4);
  const FlatVector start = random.Vector(0.1);
  const ClientTask task = TaskOf(random.Rows(2000));
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1)};
  plan.stages[0].local.steps = 1;
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(random.Setup(), *device, {.upload_bytes = 100'000});
  MustRun(*trainer, plan, task);
  EXPECT_LT(device->most_host_used(), 200'000u);
}

TEST(DeviceUploads, RowsAreInTheEstimateOfMemory) {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 3"}, {784}, 3, DType::kF32);
  const FlatVector start = models::InitialModel(setup.spec, 1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1)};
  plan.stages[0].local.steps = 1;
  const Examples examples = RandomExamples(2000, 784, 3, 1);  // 6 MB
  const ClientTask task = TaskOf(examples.Classes());
  const std::vector<Turn> turns(8, Turn{&plan, &task});
  FakeDeviceOptions options;
  options.memory = 45 << 20;
  const auto device = DeviceOf(options);
  const auto trainer = DeviceTrainerOf(setup, *device);
  const size_t turns_at_once = trainer->turns_at_once();
  ASSERT_GE(turns_at_once, 8u);
  EXPECT_EQ(trainer->RunMany(turns).size(), 2u);  // in a third of 45 MB
  EXPECT_EQ(trainer->turns_at_once(), turns_at_once) << "nothing failed";
  EXPECT_LT(device->most_used(), options.memory * 2 / 3);
}

TEST(DeviceEnds, ArePageLockedWhenTheyAreFetched) {
  const Cohort cohort(SpecOf({"linear 500"}, {200}, 500, DType::kF32), 6);
  const size_t bytes = cohort.start().layout()->bytes();
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device, {.upload_bytes = 10'000});
  LocalPlan plan;
  plan.stages = {StageFrom(View(cohort.start()), 0.1)};
  std::vector<Turn> turns;
  for (const Turn& turn : cohort.turns()) turns.push_back({&plan, turn.task});
  const std::vector<TurnOutcome> outcomes = trainer->RunMany(turns);
  ASSERT_EQ(outcomes.size(), turns.size());
  EXPECT_LT(device->most_host_used(), bytes);
  const EndVector& end = (*outcomes[1])[0].end;
  EXPECT_FALSE(end.empty());
  EXPECT_EQ(end.layout(), cohort.start().layout().get());
  EXPECT_EQ(end.place(), nullptr);
  ASSERT_TRUE(end.Fetch().ok());
  EXPECT_EQ(end.place(), end.view().bytes.data());
  EXPECT_GE(device->most_host_used(), outcomes.size() * bytes);
}

TEST(DeviceEnds, NeedNoPageLockedMemory) {
  const Cohort cohort(SpecOf({"linear 500"}, {200}, 500, DType::kF32), 6);
  const auto roomy = TeamsOf(1);
  const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *roomy), cohort.turns());
  FakeDeviceOptions options;
  options.host_memory = 2 * cohort.start().layout()->bytes();
  const auto device = DeviceOf(options);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device, {.upload_bytes = 10'000});
  ExpectSame(RunAll(*trainer, cohort.turns()), expected);
  EXPECT_EQ(trainer->turns_at_once(), DeviceTrainerOf(cohort.Setup(), *roomy)->turns_at_once());
}

}  // namespace
}  // namespace macaw::training
