#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/work_counter.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"

// Clients of different sizes with different plans, and what a device's trainer makes of them.
namespace macaw::training {

inline std::vector<std::byte> BytesOf(const std::vector<StageOutcome>& outcomes) {
  std::vector<std::byte> bytes;
  for (const StageOutcome& outcome : outcomes) {
    const std::span<const std::byte> end = outcome.end.view().bytes;
    bytes.insert(bytes.end(), end.begin(), end.end());
    const auto sums = std::as_bytes(std::span(outcome.sums));
    bytes.insert(bytes.end(), sums.begin(), sums.end());
  }
  return bytes;
}

// Several clients of different sizes with different plans.
class Cohort {
 public:
  explicit Cohort(models::ModelSpec spec, size_t clients = 7) : random_(std::move(spec), 9) {
    vectors_.push_back(random_.Vector(0.2));
    vectors_.push_back(random_.Vector(0.1));
    vectors_.push_back(random_.Vector(0.02));
    for (size_t i = 0; i < clients; ++i) {
      ClientTask task = TaskOf(random_.Rows(i == 2 ? 0 : 3 + random_.Below(20)));
      task.client = ClientId(100 + i);
      LocalPlan plan;
      std::vector<Point> points;
      for (const FlatVector& vector : vectors_) points.push_back(View(vector));
      for (size_t stage = 0; stage <= i % 3; ++stage) {
        plan.stages.push_back(random_.AnyStage(points[0], points, task.train));
        Stage& added = plan.stages.back();
        if (stage == 0) added.kind = StageKind::kTrain;
        if (added.kind == StageKind::kTrain) points[0] = StageEnd{stage};
      }
      if (i % 2 == 1) plan = AddedLater(plan, 1);
      tasks_.push_back(task);
      plans_.push_back(plan);
    }
    for (size_t i = 0; i < clients; ++i) turns_.push_back({&plans_[i], &tasks_[i]});
  }

  TrainerSetup Setup() const { return random_.Setup(); }
  std::span<const Turn> turns() const { return turns_; }
  const FlatVector& start() const { return vectors_[0]; }
  LocalPlan& plan(size_t i) { return plans_[i]; }
  ClientTask& task(size_t i) { return tasks_[i]; }

 private:
  RandomRun random_;
  std::vector<FlatVector> vectors_;
  std::vector<ClientTask> tasks_;
  std::vector<LocalPlan> plans_;
  std::vector<Turn> turns_;
};

// A client of a small model whose trainer counts its work, and a plan of one stage for it.
struct CountedClient {
  explicit CountedClient(const DeviceLimits& limits = {}) {
    TrainerSetup setup = cohort.Setup();
    setup.work = &work;
    trainer = DeviceTrainerOf(setup, *device, limits);
    plan.stages = {StageFrom(View(cohort.start()), 0.1)};
  }
  const ClientTask& task() const { return *cohort.turns()[0].task; }

  const Cohort cohort{SpecOf({"linear 3"}, {4}, 3, DType::kF32), 1};
  WorkCounter work;
  const std::unique_ptr<FakeDevice> device = TeamsOf(1);
  std::unique_ptr<DeviceTrainer> trainer;
  LocalPlan plan;
};

using Outcomes = std::vector<absl::StatusOr<std::vector<std::byte>>>;

inline Outcomes RunAll(LocalTrainer& trainer, std::span<const Turn> turns) {
  Outcomes all;
  while (all.size() < turns.size()) {
    const auto some = trainer.RunMany(turns.subspan(all.size()));
    EXPECT_FALSE(some.empty());
    if (some.empty()) break;
    for (const TurnOutcome& outcomes : some) {
      absl::Status status = outcomes.status();
      for (size_t i = 0; status.ok() && i < outcomes->size(); ++i)
        status.Update((*outcomes)[i].end.Fetch());
      if (status.ok()) {
        all.push_back(BytesOf(*outcomes));
      } else {
        all.push_back(status);
      }
    }
  }
  EXPECT_EQ(all.size(), turns.size());
  return all;
}

inline void ExpectSame(const Outcomes& actual, const Outcomes& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i].ok()) << actual[i].status();
    EXPECT_TRUE(*actual[i] == *expected[i]) << "turn " << i;
  }
}

}  // namespace macaw::training
