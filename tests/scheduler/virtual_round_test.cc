#include "testing/virtual_round.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "scheduler/estimator.h"
#include "scheduler/policies/policies.h"
#include "testing/bound.h"
#include "tests/scheduler/cohorts.h"
#include "worker/emulation.h"

namespace macaw::scheduler {
namespace {

using fixtures::MakeCohort;
using fixtures::NoisyFactor;
using fixtures::RandomLoads;

constexpr double kRow = 0.01;

std::vector<VirtualWorker> Workers(size_t count, uint32_t slots = 1) {
  std::vector<VirtualWorker> workers;
  for (size_t w = 0; w < count; ++w)
    workers.push_back({.worker = WorkerId(static_cast<uint32_t>(w + 1)), .slots = slots});
  return workers;
}

std::vector<WorkerInfo> Infos(const std::vector<VirtualWorker>& workers) {
  std::vector<WorkerInfo> infos;
  for (const VirtualWorker& worker : workers) {
    infos.push_back({.worker = worker.worker,
                     .slots = worker.slots,
                     .costs = {.row = kRow, .uncertainty = 0.3, .known = true}});
  }
  return infos;
}

double Even(const CohortEntry& entry, WorkerId, uint32_t, double) {
  return kRow * static_cast<double>(entry.load);
}

std::set<ClientId> Trained(const VirtualOutcome& outcome) {
  std::set<ClientId> clients;
  for (const VirtualTurn& turn : outcome.turns)
    EXPECT_TRUE(clients.insert(turn.entry.client).second);
  return clients;
}

TEST(VirtualRound, EveryPolicyTrainsEveryClientOnceOnWhateverWorkers) {
  RandomStream stream({.seed = 1});
  for (const auto& [name, what] : SchedulingPolicies()) {
    const auto scheduler = *MakeScheduler({.policy = name});
    for (int trial = 0; trial < 40; ++trial) {
      const auto workers = Workers(1 + stream.Below(5), 1 + static_cast<uint32_t>(stream.Below(3)));
      const Cohort cohort = MakeCohort(RandomLoads(stream, stream.Below(80)));
      const VirtualOutcome outcome = RunVirtualRound(scheduler->Assign(cohort, Infos(workers)),
                                                     workers, {.seconds = Even, .latency = 0.01});
      EXPECT_EQ(Trained(outcome).size(), cohort.entries.size());
      EXPECT_EQ(outcome.left, 0u);
    }
  }
}

TEST(VirtualRound, ASlotTrainsOneClientAtATime) {
  RandomStream stream({.seed = 2});
  const auto workers = Workers(3, 2);
  const VirtualOutcome outcome = RunVirtualRound(
      PlannedStealingScheduler().Assign(MakeCohort(RandomLoads(stream, 100)), Infos(workers)),
      workers, {.seconds = Even, .latency = 0.01});
  std::map<std::pair<uint32_t, uint32_t>, double> until;
  auto turns = outcome.turns;
  std::ranges::sort(turns, {}, &VirtualTurn::start);
  for (const VirtualTurn& turn : turns) {
    double& free = until[{turn.worker.value, turn.slot}];
    EXPECT_GE(turn.start, free);
    free = turn.end;
  }
}

// With predictions that are off by 30 % and slots of three speeds, over 50 rounds.
TEST(VirtualRound, PlannedStealingIsCloseToTheBound) {
  RandomStream stream({.seed = 3});
  double sum = 0;
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<VirtualWorker> workers = Workers(6);
    std::vector<WorkerInfo> infos = Infos(workers);
    std::vector<double> works, speeds;
    for (size_t w = 0; w < infos.size(); ++w) {
      speeds.push_back(1.0 + static_cast<double>(w % 3));
      infos[w].costs = infos[w].costs.Slower(1 / speeds.back());
    }
    const Cohort cohort = MakeCohort(RandomLoads(stream, 96));
    std::vector<double> work;
    for (const CohortEntry& entry : cohort.entries)
      work.push_back(kRow * static_cast<double>(entry.load) * NoisyFactor(stream, 0.3));
    const VirtualOutcome outcome = RunVirtualRound(
        PlannedStealingScheduler().Assign(cohort, infos), workers,
        {.seconds = [&](const CohortEntry& entry, WorkerId worker, uint32_t, double) {
          return work[entry.client.value] / speeds[worker.value - 1];
        }});
    sum += outcome.makespan / LowerBound(work, speeds).seconds;
  }
  EXPECT_LT(sum / kRounds, 1.03);
}

// One slot becomes three times as slow in the middle of the round, which the plan cannot know.
TEST(VirtualRound, AMachineThatSlowsDownInMidRoundCostsLittle) {
  const auto workers = Workers(4);
  const Cohort cohort = MakeCohort(std::vector<uint64_t>(160, 10));
  const auto seconds = [](const CohortEntry&, WorkerId worker, uint32_t, double start) {
    return worker == WorkerId(1) && start > 2 ? 0.3 : 0.1;
  };
  const auto run = [&](const Scheduler& scheduler) {
    return RunVirtualRound(scheduler.Assign(cohort, Infos(workers)), workers, {.seconds = seconds})
        .makespan;
  };
  EXPECT_LT(run(PlannedStealingScheduler()), 5.0);  // 4.6 is the bound
  EXPECT_GT(run(LongestFirstScheduler()), 7.0);
}

TEST(VirtualRound, AWorkerThatJoinsTakesItsShare) {
  std::vector<VirtualWorker> workers = Workers(2);
  const Plan plan =
      PlannedStealingScheduler().Assign(MakeCohort(std::vector<uint64_t>(100, 10)), Infos(workers));
  workers.push_back({.worker = WorkerId(3), .joins = 2});
  const VirtualOutcome outcome = RunVirtualRound(plan, workers, {.seconds = Even});
  EXPECT_EQ(Trained(outcome).size(), 100u);
  EXPECT_LT(outcome.makespan, 4.25);  // 2 + (10 − 4) ÷ 3 is the bound
}

TEST(VirtualRound, ADeadWorkersClientsAreTrainedByTheOthers) {
  for (const auto& [name, what] : SchedulingPolicies()) {
    std::vector<VirtualWorker> workers = Workers(3);
    const Plan plan = (*MakeScheduler({.policy = name}))
                          ->Assign(MakeCohort(std::vector<uint64_t>(90, 10)), Infos(workers));
    workers[1].dies = 1.05;
    const VirtualOutcome outcome =
        RunVirtualRound(plan, workers, {.seconds = Even, .latency = 0.001, .notice = 0.5});
    EXPECT_EQ(Trained(outcome).size(), 90u) << name;
    EXPECT_GT(outcome.repeated, 0u) << name;
    for (const VirtualTurn& turn : outcome.turns) EXPECT_NE(turn.worker, WorkerId(2));
  }
}

TEST(VirtualRound, WhenEverybodyDiesTheRestIsLeft) {
  std::vector<VirtualWorker> workers = Workers(1);
  const Plan plan = PlannedStealingScheduler().Assign(MakeCohort({10, 10, 10}), Infos(workers));
  workers[0].dies = 0.15;
  EXPECT_EQ(RunVirtualRound(plan, workers, {.seconds = Even}).left, 3u);
}

// A fast round needs few requests, although each piece is small towards the end.
TEST(VirtualRound, ShortClientsShareARequest) {
  const auto workers = Workers(2);
  const VirtualOptions options = {
      .seconds = [](const CohortEntry&, WorkerId, uint32_t, double) { return 5e-5; },
      .latency = 2e-4,
      .least_seconds = 2e-3};
  std::vector<WorkerInfo> infos = Infos(workers);
  for (WorkerInfo& info : infos) info.costs = {.fixed = 5e-5, .row = 0, .known = true};
  const VirtualOutcome outcome = RunVirtualRound(
      PlannedStealingScheduler().Assign(MakeCohort(std::vector<uint64_t>(100, 1)), infos), workers,
      options);
  EXPECT_LE(outcome.asks, 8u);
}

// The whole loop over rounds: the speeds are unknown at first and the estimator learns them.
TEST(VirtualRound, WithTheEstimatorRoundsComeCloseToTheBound) {
  RandomStream stream({.seed = 4});
  const auto workers = Workers(4);
  Estimator estimator;
  for (const VirtualWorker& worker : workers) estimator.AddWorker(worker.worker, "cpu");
  std::vector<double> ratios;
  for (uint32_t round = 1; round <= 30; ++round) {
    std::vector<WorkerInfo> infos;
    std::vector<double> speeds;
    for (const VirtualWorker& worker : workers) {
      infos.push_back({.worker = worker.worker, .costs = estimator.CostsOf(worker.worker)});
      speeds.push_back(1 /
                       EmulatedSlowdown({.environment = "cos", .ratio = 1},
                                        {.slot = worker.worker.value - 1, .slots = 4, .rounds = 30},
                                        Round(round)));
    }
    const Cohort cohort = MakeCohort(RandomLoads(stream, 64), Round(round));
    std::vector<double> work;
    for (const CohortEntry& entry : cohort.entries)
      work.push_back(kRow * static_cast<double>(entry.load) * NoisyFactor(stream, 0.1));
    const VirtualOutcome outcome = RunVirtualRound(
        PlannedStealingScheduler().Assign(cohort, infos), workers,
        {.seconds = [&](const CohortEntry& entry, WorkerId worker, uint32_t, double) {
          return work[entry.client.value] / speeds[worker.value - 1];
        }});
    for (const VirtualTurn& turn : outcome.turns)
      estimator.Observe(turn.worker, turn.entry, {.train_seconds = turn.end - turn.start});
    estimator.EndRound();
    ratios.push_back(outcome.makespan / LowerBound(work, speeds).seconds);
  }
  double late = 0;
  for (size_t i = 10; i < ratios.size(); ++i) late += ratios[i] / 20;
  EXPECT_LT(late, 1.03);
}

TEST(VirtualRound, IsAFunctionOfItsInputs) {
  RandomStream stream({.seed = 5});
  const auto workers = Workers(5, 2);
  const Plan plan =
      PlannedStealingScheduler().Assign(MakeCohort(RandomLoads(stream, 120)), Infos(workers));
  const auto trace = [&] {
    std::vector<std::tuple<uint64_t, uint32_t, double>> turns;
    for (const VirtualTurn& turn :
         RunVirtualRound(plan, workers, {.seconds = Even, .latency = 0.003}).turns)
      turns.emplace_back(turn.entry.client.value, turn.worker.value, turn.end);
    return turns;
  };
  EXPECT_EQ(trace(), trace());
}

}  // namespace
}  // namespace macaw::scheduler
