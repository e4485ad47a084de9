#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "scheduler/dispatch.h"
#include "scheduler/estimator.h"
#include "scheduler/plan.h"
#include "testing/virtual_round.h"
#include "tests/scheduler/cohorts.h"

// A worker of a kind of device without times, beside workers that have reported some.
namespace macaw::scheduler {
namespace {

using fixtures::MakeCohort;
using testing::HasSubstr;

constexpr double kRowSeconds = 1e-3;
constexpr WorkerId kUntried(9);

Costs Reported(double factor) {
  return Costs{.row = kRowSeconds * factor, .uncertainty = 0.05, .known = true};
}

// Workers 1, 2, … with these factors, and one without times.
std::vector<WorkerInfo> WithOneUntried(const std::vector<double>& factors) {
  std::vector<WorkerInfo> workers;
  for (size_t w = 0; w < factors.size(); ++w) {
    workers.push_back({WorkerId(static_cast<uint32_t>(w + 1)), 1, Reported(factors[w])});
  }
  workers.push_back({kUntried, 1, Costs{}});
  return workers;
}

// How many clients each worker trains; `untried`: how slow the worker without times is.
std::map<WorkerId, uint64_t> TrainedBy(const Plan& plan, const std::vector<double>& factors,
                                       double untried) {
  std::vector<VirtualWorker> workers;
  for (const WorkerQueue& queue : plan.queues) workers.push_back({.worker = queue.worker.worker});
  const auto seconds = [&](const CohortEntry& entry, WorkerId worker, uint32_t, double) {
    const double factor = worker == kUntried ? untried : factors[worker.value - 1];
    return static_cast<double>(entry.load) * kRowSeconds * factor;
  };
  const VirtualOutcome outcome =
      RunVirtualRound(plan, workers, {.seconds = seconds, .latency = 1e-4, .least_seconds = 2e-3});
  EXPECT_EQ(outcome.left, 0u);
  std::map<WorkerId, uint64_t> trained;
  for (const VirtualTurn& turn : outcome.turns) ++trained[turn.worker];
  return trained;
}

class UntriedWorker : public testing::TestWithParam<std::string> {
 protected:
  static Plan PlanOf(const std::vector<uint64_t>& loads, const std::vector<WorkerInfo>& workers) {
    return (*MakeScheduler({.policy = GetParam()}))->Assign(MakeCohort(loads), workers);
  }
};

// However slow it is, and however fast the others are.
TEST_P(UntriedWorker, GetsAClientInEachRound) {
  for (const std::vector<double>& factors :
       {std::vector<double>{1}, {1, 1}, {1, 100}, {1, 1, 0.1}, {0.01, 1, 100, 100}}) {
    for (const double untried : {0.01, 1.0, 50.0}) {
      for (const size_t clients : {factors.size() + 1, size_t{10}, size_t{100}, size_t{1000}}) {
        const Plan plan = PlanOf(std::vector<uint64_t>(clients, 100), WithOneUntried(factors));
        EXPECT_GE(TrainedBy(plan, factors, untried)[kUntried], 1u)
            << factors.size() << " others, " << clients << " clients, factor " << untried;
      }
    }
  }
}

TEST_P(UntriedWorker, GetsHalfBesideOneOfTheSameSpeed) {
  const Plan plan = PlanOf(std::vector<uint64_t>(100, 100), WithOneUntried({1}));
  EXPECT_NEAR(static_cast<double>(TrainedBy(plan, {1}, 1)[kUntried]), 50,
              GetParam() == "longest_first" ? 20 : 5);
}

INSTANTIATE_TEST_SUITE_P(Of, UntriedWorker, testing::Values("planned_stealing", "longest_first"));

// Its costs are a guess in the unit of the others, of those that have reported times alone.
TEST(UntriedWorkers, AreTakenForTheMeanOfThoseThatHaveTimes) {
  const auto scheduler = *MakeScheduler({});
  std::vector<WorkerInfo> workers = WithOneUntried({1, 3});
  workers.push_back({WorkerId(10), 1, Costs{.row = 40, .of_others = true}});
  const Plan plan = scheduler->Assign(MakeCohort(std::vector<uint64_t>(50, 100)), workers);
  const Costs& guess = plan.queues[2].worker.costs;
  EXPECT_NEAR(guess.row, 2 * kRowSeconds, 1e-12);
  EXPECT_EQ(guess.uncertainty, Costs{}.uncertainty);
  EXPECT_FALSE(guess.known);
  EXPECT_TRUE(guess.InSeconds());
  EXPECT_EQ(plan.queues[3].worker.costs.row, 40) << "a device with times";
  EXPECT_EQ(plan.queues[0].worker.costs.row, kRowSeconds);
  const Plan late = scheduler->Assign(MakeCohort({1000}), std::span(workers).subspan(2));
  EXPECT_EQ(late.queues[0].worker.costs.row, 40) << "no worker, but a device";
}

// Nobody has times: rows stand for seconds, and nothing is a guess.
TEST(UntriedWorkers, CompareRowsWhereNobodyHasTimes) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1)}, {WorkerId(2)}};
  const Plan plan = (*MakeScheduler({}))->Assign(MakeCohort({30, 10, 10, 10}), workers);
  for (const WorkerQueue& queue : plan.queues) {
    EXPECT_EQ(queue.worker.costs.row, 1);
    EXPECT_FALSE(queue.worker.costs.InSeconds());
  }
  EXPECT_THAT(plan.reason, HasSubstr("rows stand for seconds"));
  EXPECT_EQ(plan.queues[0].queue.size(), 1u);
}

TEST(UntriedWorkers, AreNamedWhereTheyWouldEndLast) {
  const Plan plan = (*MakeScheduler({}))->Assign(MakeCohort({50, 100}), WithOneUntried({1}));
  ASSERT_EQ(plan.queues[1].queue.size(), 1u);
  EXPECT_THAT(plan.reason, HasSubstr("would end last, after"));
  const std::vector<WorkerInfo> alone = {{kUntried, 1, Costs{.row = 1, .of_others = true}}};
  EXPECT_THAT((*MakeScheduler({}))->Assign(MakeCohort({50}), alone).reason,
              HasSubstr("worker 9, which has reported no times yet, would end last, after 50 s"));
}

// A queue ends earlier by the client that it gives away, so that the next one is another's.
TEST(UntriedWorkers, TakeTheirClientsFromTheQueueThatStillEndsLast) {
  const Costs slow{.row = 40, .of_others = true};
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 1, Reported(1)},
                                           {WorkerId(2), 1, Reported(1.4)},
                                           {kUntried, 1, slow},
                                           {WorkerId(10), 1, slow}};
  const auto scheduler = *MakeScheduler({.policy = "longest_first"});
  const Plan plan = scheduler->Assign(MakeCohort(std::vector<uint64_t>(5, 100)), workers);
  EXPECT_EQ(plan.queues[0].queue.size(), 2u);
  EXPECT_EQ(plan.queues[1].queue.size(), 1u);
  EXPECT_NEAR(plan.queues[0].finish, 0.2, 1e-9);
  EXPECT_NEAR(plan.queues[1].finish, 0.14, 1e-9);
  for (const size_t untried : {2, 3}) EXPECT_EQ(plan.queues[untried].queue.size(), 1u);
}

// Over rounds with the estimator, as in a fleet whose second kind of device joins later.
TEST(UntriedWorkers, AreSoonPlannedByTheirOwnTimes) {
  Estimator estimator;
  const auto scheduler = *MakeScheduler({});
  const std::vector<double> factors = {1, 1};
  estimator.AddWorker(WorkerId(1), "old kind");
  std::vector<WorkerId> there = {WorkerId(1)};
  for (int round = 1; round <= 6; ++round) {
    if (round == 3) {
      there.push_back(kUntried);
      estimator.AddWorker(kUntried, "new kind");
    }
    std::vector<WorkerInfo> infos;
    for (const WorkerId worker : there) infos.push_back({worker, 1, estimator.CostsOf(worker)});
    const Plan plan = scheduler->Assign(MakeCohort(std::vector<uint64_t>(20, 100)), infos);
    std::vector<VirtualWorker> workers;
    for (const WorkerId worker : there) workers.push_back({.worker = worker});
    const auto seconds = [&](const CohortEntry& entry, WorkerId worker, uint32_t, double) {
      return static_cast<double>(entry.load) * kRowSeconds * (worker == kUntried ? 20 : 1);
    };
    const VirtualOutcome outcome = RunVirtualRound(plan, workers, {.seconds = seconds});
    uint64_t of_new = 0;
    for (const VirtualTurn& turn : outcome.turns) {
      estimator.Observe(turn.worker, turn.entry, {.train_seconds = turn.end - turn.start});
      of_new += turn.worker == kUntried ? 1 : 0;
    }
    estimator.EndRound();
    if (round == 3) {
      EXPECT_GE(of_new, 1u);
      EXPECT_TRUE(estimator.CostsOf(kUntried).known);
    }
    if (round > 3) {
      EXPECT_LE(of_new, 1u) << "it is twenty times as slow, which is known now";
    }
  }
}

// Two of a new kind, of which one has trained: the other one follows their kind.
TEST(UntriedWorkers, FollowTheirKindOnceOneOfItHasTimes) {
  Estimator estimator;
  estimator.AddWorker(WorkerId(1), "new kind");
  estimator.AddWorker(WorkerId(2), "new kind");
  EXPECT_FALSE(estimator.CostsOf(WorkerId(2)).InSeconds());
  for (uint64_t rows = 10; rows <= 200; rows += 10) {
    estimator.Observe(WorkerId(1), {.client = ClientId(rows), .load = rows},
                      {.train_seconds = static_cast<double>(rows) * kRowSeconds});
  }
  estimator.EndRound();
  const Costs costs = estimator.CostsOf(WorkerId(2));
  EXPECT_FALSE(costs.known);
  EXPECT_TRUE(costs.InSeconds());
  EXPECT_NEAR(costs.Seconds({.rows = 100}), 100 * kRowSeconds, 0.02);
}

}  // namespace
}  // namespace macaw::scheduler
