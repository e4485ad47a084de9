#include "scheduler/policies/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "testing/bound.h"
#include "tests/scheduler/cohorts.h"

namespace macaw::scheduler {
namespace {

using fixtures::MakeCohort;
using fixtures::RandomLoads;

uint64_t LoadOf(const WorkerQueue& queue) {
  uint64_t load = 0;
  for (const CohortEntry& entry : queue.queue) load += entry.load;
  return load;
}

std::vector<CohortEntry> Everybody(const Plan& plan) {
  std::vector<CohortEntry> all = plan.common;
  for (const WorkerQueue& queue : plan.queues)
    all.insert(all.end(), queue.queue.begin(), queue.queue.end());
  return all;
}

std::vector<std::vector<uint64_t>> Shape(const Plan& plan) {
  std::vector<std::vector<uint64_t>> shape(1);
  for (const CohortEntry& entry : plan.common) shape[0].push_back(entry.client.value);
  for (const WorkerQueue& queue : plan.queues) {
    shape.emplace_back();
    for (const CohortEntry& entry : queue.queue) shape.back().push_back(entry.client.value);
  }
  return shape;
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<Scheduler> scheduler_ = *MakeScheduler({.policy = GetParam(), .seed = 5});
};

TEST_P(EveryPolicy, PlansEveryClientOnceAndTheSameWayEachTime) {
  RandomStream stream({.seed = 3});
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<WorkerInfo> workers;
    for (uint64_t w = 0, count = 1 + stream.Below(5); w < count; ++w) {
      workers.push_back({.worker = WorkerId(static_cast<uint32_t>(w + 1)),
                         .slots = 1 + static_cast<uint32_t>(stream.Below(3)),
                         .costs = Costs{}.Slower(1 + stream.Uniform())});
    }
    const Cohort cohort = MakeCohort(RandomLoads(stream, stream.Below(50)), Round(7));
    const Plan plan = scheduler_->Assign(cohort, workers);
    std::set<ClientId> seen;
    for (const CohortEntry& entry : Everybody(plan)) EXPECT_TRUE(seen.insert(entry.client).second);
    EXPECT_EQ(seen.size(), cohort.entries.size());
    EXPECT_EQ(Shape(scheduler_->Assign(cohort, workers)), Shape(plan));
  }
}

TEST_P(EveryPolicy, SaysWhyInASentence) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 2}, {WorkerId(2), 1}};
  const Plan plan = scheduler_->Assign(MakeCohort(std::vector<uint64_t>(12, 10)), workers);
  EXPECT_THAT(plan.reason, ::testing::HasSubstr("12 clients on 3 slots of 2 workers"));
  EXPECT_THAT(plan.reason, ::testing::EndsWith("."));
}

TEST_P(EveryPolicy, GivesAnEmptyPlanWithoutWorkers) {
  const Plan plan = scheduler_->Assign(MakeCohort({1, 2, 3}), {});
  EXPECT_TRUE(plan.queues.empty());
  EXPECT_TRUE(plan.common.empty());  // no clients either
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const auto& [name, what] : SchedulingPolicies()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::ValuesIn(PolicyNames()),
                         [](const auto& policy) { return policy.param; });

TEST(MakeScheduler, AnUnknownPolicyIsRefusedWithTheListOfPolicies) {
  const absl::Status status = MakeScheduler({.policy = "magic"}).status();
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(::testing::HasSubstr("\"magic\""), ::testing::HasSubstr("planned_stealing"),
                       ::testing::HasSubstr("round_robin")));
}

TEST(UniformScheduler, GivesEachSlotNeighbours) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 2}, {WorkerId(2), 1}};
  const Plan plan = UniformScheduler().Assign(MakeCohort({1, 2, 3, 4, 5, 6, 7}), workers);
  EXPECT_EQ(Shape(plan)[1], (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Shape(plan)[2], (std::vector<uint64_t>{5, 6}));
}

TEST(RandomScheduler, DrawsAnotherOrderEachRoundAndSeed) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 2}};
  const std::vector<uint64_t> loads(40, 1);
  const auto order = [&](uint64_t seed, uint32_t round) {
    return Shape(RandomScheduler(seed).Assign(MakeCohort(loads, Round(round)), workers))[0];
  };
  EXPECT_NE(order(1, 1), order(1, 2));
  EXPECT_NE(order(1, 1), order(2, 1));
}

TEST(LongestFirstScheduler, IsWithinFourThirdsOfTheBoundOnEqualSlots) {
  RandomStream stream({.seed = 1});
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<uint64_t> loads = RandomLoads(stream, 200);
    const std::vector<WorkerInfo> workers = {{WorkerId(1), 2}, {WorkerId(2), 2}, {WorkerId(3), 4}};
    const Plan plan = LongestFirstScheduler().Assign(MakeCohort(loads), workers);
    const Bound bound =
        LowerBound(std::vector<double>(loads.begin(), loads.end()), std::vector<double>(8, 1.0));
    for (const WorkerQueue& queue : plan.queues)
      EXPECT_LE(queue.finish, 4.0 / 3 * bound.seconds + 1e-9);
  }
}

TEST(LongestFirstScheduler, GivesTheFastWorkerMore) {
  const std::vector<WorkerInfo> workers = {{.worker = WorkerId(1), .costs = Costs{}.Slower(3)},
                                           {.worker = WorkerId(2)}};
  const Plan plan =
      LongestFirstScheduler().Assign(MakeCohort(std::vector<uint64_t>(400, 10)), workers);
  EXPECT_NEAR(static_cast<double>(LoadOf(plan.queues[1])) / LoadOf(plan.queues[0]), 3.0, 0.1);
}

// The slot that becomes free first is not the one that would finish the client first.
TEST(LongestFirstScheduler, PutsALongClientOnTheFastSlotAlthoughItIsBusy) {
  const std::vector<WorkerInfo> workers = {{.worker = WorkerId(1)},
                                           {.worker = WorkerId(2), .costs = Costs{}.Slower(10)}};
  const Plan plan = LongestFirstScheduler().Assign(MakeCohort({100, 90}), workers);
  EXPECT_EQ(plan.queues[0].queue.size(), 2u);
  EXPECT_TRUE(plan.queues[1].queue.empty());
}

TEST(LongestFirstScheduler, CountsTheTimeThatReadingAStateTakes) {
  const std::vector<WorkerInfo> workers = {{.worker = WorkerId(1), .costs = {.state = 300}},
                                           {.worker = WorkerId(2), .costs = {.row = 2}}};
  Cohort cohort = MakeCohort({100, 30});
  for (CohortEntry& entry : cohort.entries) entry.has_state = true;
  // Worker 2 trains at half the speed, but finishes both clients before worker 1 has read one
  // state.
  const Plan plan = LongestFirstScheduler().Assign(cohort, workers);
  EXPECT_TRUE(plan.queues[0].queue.empty());
  EXPECT_EQ(plan.queues[1].finish, 260);
}

TEST(PlannedStealingScheduler, NamesTheWorkerThatWouldEndLast) {
  const std::vector<WorkerInfo> workers = {
      {.worker = WorkerId(4), .costs = {.row = 0.5, .known = true}}};
  const Plan plan = PlannedStealingScheduler().Assign(MakeCohort({10, 20}), workers);
  EXPECT_THAT(plan.reason, ::testing::HasSubstr("worker 4 would end last, after 15 s"));
}

TEST(PlannedStealingScheduler, SplitsOnlyWhatTakesLongEnoughToAskTwice) {
  const auto hand_out = [](double row_seconds, bool known) {
    const Costs costs{.row = row_seconds, .known = known};
    const std::vector<WorkerInfo> workers = {{WorkerId(1), 2, costs}, {WorkerId(2), 2, costs}};
    return PlannedStealingScheduler()
        .Assign(MakeCohort(std::vector<uint64_t>(40, 10)), workers)
        .hand_out;
  };
  EXPECT_EQ(hand_out(1e-5, true), HandOut::kWhole);   // 1 ms a slot
  EXPECT_EQ(hand_out(1e-3, true), HandOut::kGuided);  // 100 ms a slot
  // Without known times rows count as seconds, which may be wrong.
  EXPECT_EQ(hand_out(1e-5, false), HandOut::kGuided);
}

TEST(LowerBound, KnowsSpeedsAndTheSingleHugeClient) {
  EXPECT_DOUBLE_EQ(LowerBound({1, 1, 1, 1}, {1, 1}).seconds, 2);
  EXPECT_DOUBLE_EQ(LowerBound({8, 1, 1}, {4, 1}).seconds, 2);
  EXPECT_TRUE(LowerBound({100, 1, 1}, {4, 1}).one_client);
  EXPECT_DOUBLE_EQ(LowerBound({100, 1, 1}, {4, 1}).seconds, 25);
  EXPECT_DOUBLE_EQ(LowerBound({9, 9, 1}, {2, 1, 1}).seconds, 6);  // the two largest
  EXPECT_DOUBLE_EQ(LowerBound({}, {1}).seconds, 0);
}

}  // namespace
}  // namespace macaw::scheduler
