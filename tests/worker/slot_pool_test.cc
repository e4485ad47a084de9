#include "worker/slot_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/asynchronous.h"
#include "tests/worker/slot_pool_fixture.h"

namespace macaw::worker {
namespace {

using fixtures::Registry;
using fixtures::SlotPoolTest;
using fixtures::SumOf;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

// Its trainers never end a client's work by themselves, only when it is not wanted any more.
class Endless final : public training::Backend {
 public:
  class Trainer final : public training::LocalTrainer {
   public:
    Trainer(WorkCounter& work, std::atomic<int>& begun) : work_(work), begun_(begun) {}
    training::TurnOutcome Run(const training::LocalPlan&, const training::ClientTask&) override {
      ++begun_;
      while (!work_.given_up()) std::this_thread::yield();
      return absl::CancelledError("not wanted any more");
    }
    absl::StatusOr<training::MetricSums> Evaluate(ConstVectorView, const data::Rows&, uint64_t,
                                                  uint64_t, uint32_t) override {
      return absl::UnimplementedError("it trains");
    }
    std::string name() const override { return "endless"; }

   private:
    WorkCounter& work_;
    std::atomic<int>& begun_;
  };

  std::string name() const override { return "endless"; }
  absl::Status Supports(const training::TrainerSetup&) const override { return absl::OkStatus(); }
  absl::StatusOr<NumericProfile> Profile(const training::TrainerSetup& setup) const override {
    return training::FusedBackend().Profile(setup);
  }
  absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainer(
      const training::TrainerSetup& setup) const override {
    return std::make_unique<Trainer>(*setup.work, begun);
  }
  std::string Report() const override { return ""; }

  mutable std::atomic<int> begun = 0;
};

// The fused kernels. Its trainers report of some clients more rows or more steps than they took.
class Boastful final : public training::Backend {
 public:
  class Trainer final : public training::LocalTrainer {
   public:
    explicit Trainer(std::unique_ptr<training::LocalTrainer> honest) : honest_(std::move(honest)) {}
    training::TurnOutcome Run(const training::LocalPlan& plan,
                              const training::ClientTask& task) override {
      training::TurnOutcome outcomes = honest_->Run(plan, task);
      if (!outcomes.ok()) return outcomes;
      training::StageOutcome& last = outcomes->back();
      if (task.client == ClientId(1)) last.sums[0] *= 1e6;
      if (task.client == ClientId(2)) last.steps = 10'000'000;
      if (task.client == ClientId(3)) last.sums[0] *= 500;  // it may have passed over them so often
      return outcomes;
    }
    absl::StatusOr<training::MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows,
                                                  uint64_t begin, uint64_t end,
                                                  uint32_t batch) override {
      return honest_->Evaluate(model, rows, begin, end, batch);
    }
    std::string name() const override { return "boastful"; }

   private:
    std::unique_ptr<training::LocalTrainer> honest_;
  };

  std::string name() const override { return "boastful"; }
  absl::Status Supports(const training::TrainerSetup&) const override { return absl::OkStatus(); }
  absl::StatusOr<NumericProfile> Profile(const training::TrainerSetup& setup) const override {
    return training::FusedBackend().Profile(setup);
  }
  absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainer(
      const training::TrainerSetup& setup) const override {
    auto honest = training::FusedBackend().MakeTrainer(setup);
    if (!honest.ok()) return honest.status();
    return std::make_unique<Trainer>(*std::move(honest));
  }
  std::string Report() const override { return ""; }
};

TEST_F(SlotPoolTest, AddsUpToTheSameBytesOnAnyNumberOfSlots) {
  const Harvest one = TrainAll(1), four = TrainAll(4);
  ASSERT_THAT(one.sums, SizeIs(1));
  EXPECT_THAT(one.included, SizeIs(12));
  EXPECT_THAT(four.included, SizeIs(12));
  EXPECT_EQ(SumOf(four), SumOf(one));
}

TEST_F(SlotPoolTest, CountsEveryBatchAsWork) {
  const auto pool = Start(2);
  EXPECT_EQ(pool->work_done(), 0u);
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  const uint64_t trained = pool->work_done();
  uint64_t steps = 0;
  const Harvest harvest = *pool->TakeHarvest();
  for (const fleet::ClientRecord& record : harvest.included) steps += record.steps;
  EXPECT_GE(trained, 12 + steps) << "the rows of 12 clients, and each minibatch";

  auto evaluation = std::make_shared<EvaluationContext>();
  evaluation->round = Round(1);
  evaluation->model = model_.view();
  const uint64_t rows = dataset_->CentralTest().size();
  ASSERT_GT(rows, 0u);
  pool->Enqueue(std::move(evaluation), {{.fence = {1, 1}, .end = rows}});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_GE(pool->work_done(), trained + (rows + 199) / 200);
}

TEST_F(SlotPoolTest, CountsTheTimeOfSlowHardwareAsWork) {
  const auto work = [&](std::vector<double> slowdown) {
    const auto pool = Start(1, std::move(slowdown));
    pool->Enqueue(Phase1(), Assignments(0, 3), TimePoint{});
    EXPECT_TRUE(pool->WaitIdle());
    return pool->work_done();
  };
  const uint64_t usual = work({});
  EXPECT_GE(work({3}), usual + 3) << "each client's pause is work, too";
}

TEST_F(SlotPoolTest, LeavesOutAClientThatCannotBeAddedWithTheReason) {
  const auto pool = Start(2);
  auto assignments = Assignments(0, 3);
  assignments.push_back({.client = ClientId(4), .place = 4, .fence = {1, 51}, .weight = 101});
  pool->Enqueue(Phase1(), assignments, TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  const Harvest harvest = *pool->TakeHarvest();
  EXPECT_THAT(harvest.included, SizeIs(3));
  ASSERT_THAT(harvest.left_out, SizeIs(1));
  EXPECT_EQ(harvest.left_out[0].attempt.client, ClientId(4));
  EXPECT_THAT(harvest.left_out[0].message, HasSubstr("101"));
  uint64_t added = 0;
  for (const aggregation::ExactSum& sum : harvest.sums) added += sum.clients();
  EXPECT_EQ(added, 3u) << "what is left out leaves no trace";
}

// A server refuses a part with such a client, and all others of it would be lost, too.
TEST_F(SlotPoolTest, LeavesOutAClientWhoseTrainerReportsMoreWorkThanCanCount) {
  const Boastful boastful;
  UseBackend(boastful);
  const auto pool = Start(2);
  pool->Enqueue(Phase1(), Assignments(0, 4), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle()) << pool->error();
  Harvest harvest = *pool->TakeHarvest();
  EXPECT_THAT(harvest.included, SizeIs(2));
  ASSERT_THAT(harvest.left_out, SizeIs(2));
  std::ranges::sort(harvest.left_out, {},
                    [](const fleet::LeftOut& left) { return left.attempt.client; });
  EXPECT_EQ(harvest.left_out[0].attempt.client, ClientId(1));
  EXPECT_EQ(harvest.left_out[0].reason, fleet::LeftOutReason::kFailed);
  EXPECT_THAT(harvest.left_out[0].message,
              AllOf(StartsWith("its trainer reports"), HasSubstr("000000 rows"),
                    HasSubstr("[local] plans")));
  EXPECT_EQ(harvest.left_out[1].attempt.client, ClientId(2));
  EXPECT_THAT(harvest.left_out[1].message, HasSubstr("10000000 steps"));
  uint64_t added = 0;
  for (const aggregation::ExactSum& sum : harvest.sums) added += sum.clients();
  EXPECT_EQ(added, 2u);
}

TEST_F(SlotPoolTest, LeavesOutAClientThatCannotTakeAStep) {
  const auto pool = Start(2);
  const auto phase = Phase1();
  const uint32_t rows = dataset_->Examples(ClientId(1), data::Split::kTrain);
  phase->local.batch_size = rows + 1;
  phase->local.drop_last = true;
  pool->Enqueue(phase, Assignments(1, 2), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  const Harvest harvest = *pool->TakeHarvest();
  EXPECT_THAT(harvest.included, IsEmpty());
  ASSERT_THAT(harvest.left_out, SizeIs(1));
  EXPECT_EQ(harvest.left_out[0].reason, fleet::LeftOutReason::kNoData);
  EXPECT_THAT(harvest.left_out[0].message,
              AllOf(StartsWith("it has"), HasSubstr("local.drop_last")));
}

TEST_F(SlotPoolTest, LeavesOutClientsThatDiverge) {
  const auto pool = Start(2);
  const auto phase = Phase1();
  phase->local.lr = 1e30;
  pool->Enqueue(phase, Assignments(0, 4), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  const Harvest harvest = *pool->TakeHarvest();
  EXPECT_THAT(harvest.included, IsEmpty());
  EXPECT_THAT(harvest.left_out, SizeIs(4));
  // Who it is stands beside the message already.
  for (const fleet::LeftOut& left : harvest.left_out)
    EXPECT_THAT(left.message, Not(HasSubstr("client "))) << left.message;
  EXPECT_THAT(harvest.sums, IsEmpty());
}

TEST_F(SlotPoolTest, DropsWhatHasNotStarted) {
  // So slow that the first is still running when the rest is dropped, on a busy machine, too.
  const auto pool = Start(1, {2000});
  pool->Enqueue(Phase1(), Assignments(0, 6), TimePoint{});
  ASSERT_TRUE(pool->WaitForQueueBelow(5));
  EXPECT_LE(pool->Queued().size(), 5u);
  std::vector<Attempt> last;
  for (uint64_t k = 3; k < 6; ++k) last.push_back({ClientId(k), {1, k + 1}});
  pool->Drop(last);
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(3));
}

TEST_F(SlotPoolTest, EndsWhatItsTrainersHaveBegunWhenItIsClearedOrGoes) {
  const Endless endless;
  UseBackend(endless);
  const auto pool = Start(2);
  for (int time = 1; time <= 2; ++time) {
    pool->Enqueue(Phase1(), Assignments(0, 5), TimePoint{});
    while (endless.begun < 2 * time) std::this_thread::yield();
    pool->Clear();
    EXPECT_TRUE(pool->error().ok()) << pool->error();
    EXPECT_EQ(pool->held(), 0u);
  }
  pool->Enqueue(Phase1(), Assignments(0, 1), TimePoint{});
  while (endless.begun < 5) std::this_thread::yield();
}

// A device that began in round 3 and is told that it counts in round 5 sends the bytes of a
// simulation's client that was leased in round 5 with a model two rounds old.
TEST_F(SlotPoolTest, AClientThatArrivesIsAddedAsOneThatWasLeasedInThatRound) {
  context_.run.asynchronous.mode = "buffered";
  Use(algorithms::Asynchronous(**Registry().Find("fedavg"), context_.run));
  const auto pool = Start(1);
  const auto leased = Phase1();
  leased->round = Round(5);
  leased->staleness = 2;
  auto assignments = Assignments(3, 4);
  const Attempt attempt{assignments[0].client, assignments[0].fence};
  assignments[0].staleness = 2;
  pool->Enqueue(leased, assignments, TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  const Harvest simulated = *pool->TakeHarvest();
  pool->Settle();

  const auto begun = Phase1();
  begun->round = Round(3);
  begun->order.total_weight = 50'000;  // a grid that is not used
  begun->arrives = true;
  pool->Enqueue(begun, Assignments(3, 4), TimePoint{});
  ASSERT_TRUE(pool->WaitIdleOrTrained());
  ASSERT_THAT(pool->Trained(), testing::ElementsAre(attempt));
  EXPECT_EQ(pool->held(), 1u);
  const auto told = std::make_shared<PhaseContext>(*begun);
  told->round = Round(5);
  told->staleness = 2;
  told->order = leased->order;
  told->arrives = false;
  pool->Arrive(attempt, told);
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_THAT(pool->Trained(), IsEmpty());
  const Harvest arrived = *pool->TakeHarvest();
  ASSERT_THAT(arrived.included, SizeIs(1));
  EXPECT_EQ(arrived.phase->round, Round(5));
  EXPECT_EQ(SumOf(arrived), SumOf(simulated));
  pool->Settle();

  // In time it would count more.
  pool->Enqueue(begun, Assignments(3, 4), TimePoint{});
  ASSERT_TRUE(pool->WaitIdleOrTrained());
  const auto fresh = std::make_shared<PhaseContext>(*told);
  fresh->round = Round(3);
  fresh->staleness = 0;
  pool->Arrive(attempt, fresh);
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_NE(SumOf(*pool->TakeHarvest()), SumOf(simulated));
}

TEST_F(SlotPoolTest, NothingIsLeftOfAClientThatDoesNotCountAnyMore) {
  const auto pool = Start(1);
  const auto begun = Phase1();
  begun->arrives = true;
  for (const bool is_left_out : {false, true}) {
    begun->local.lr = is_left_out ? 1e30 : context_.run.local.lr;
    pool->Enqueue(begun, Assignments(3, 4), TimePoint{});
    ASSERT_TRUE(pool->WaitIdleOrTrained());
    ASSERT_THAT(pool->Trained(), SizeIs(1));
    pool->Arrive(pool->Trained()[0], nullptr);
    ASSERT_TRUE(pool->WaitIdle());
    EXPECT_EQ(pool->held(), 0u);
    EXPECT_TRUE(pool->TakeHarvest()->empty());
  }
  pool->Enqueue(begun, Assignments(5, 6), TimePoint{});
  ASSERT_TRUE(pool->WaitIdleOrTrained());
  pool->Clear();  // the session has ended
  EXPECT_THAT(pool->Trained(), IsEmpty());
  EXPECT_TRUE(pool->TakeHarvest()->empty());
}

TEST_F(SlotPoolTest, WakesWhoWaitsWhenInterruptedAndStartsCleanAfterClear) {
  const auto pool = Start(1, {20});
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  std::thread interrupter([&] { pool->Interrupt(); });
  EXPECT_FALSE(pool->WaitIdle());
  interrupter.join();
  pool->Clear();
  EXPECT_THAT(pool->Queued(), IsEmpty());
  EXPECT_EQ(pool->held(), 0u);
  EXPECT_TRUE(pool->WaitIdle());
  EXPECT_TRUE(pool->TakeHarvest()->empty());
  pool->Enqueue(Phase1(), Assignments(0, 1), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(1));
}

TEST_F(SlotPoolTest, EvaluatesRowsWhoeverAsksForThem) {
  const auto pool = Start(2);
  auto evaluation = std::make_shared<EvaluationContext>();
  evaluation->round = Round(1);
  evaluation->model = model_.view();
  const uint64_t rows = dataset_->info().test_examples;
  ASSERT_GE(rows, 2u);
  pool->Enqueue(
      evaluation,
      {{.fence = {1, 1}, .begin = 0, .end = rows / 2},
       {.fence = {1, 2}, .begin = rows / 2, .end = rows},
       {.fence = {1, 3}, .kind = fleet::EvaluationKind::kClientTest, .client = ClientId(2)}});
  ASSERT_TRUE(pool->WaitIdle());
  const Harvest harvest = *pool->TakeHarvest();
  EXPECT_EQ(harvest.phase, nullptr);
  double central = 0;
  for (const fleet::EvaluationResult& result : harvest.evaluations) {
    if (result.task.kind == fleet::EvaluationKind::kCentralTest)
      central += result.sums[0];
    else
      EXPECT_EQ(result.sums[0], dataset_->Examples(ClientId(2), data::Split::kTest));
  }
  EXPECT_THAT(harvest.evaluations, SizeIs(3));
  EXPECT_EQ(central, static_cast<double>(rows));
}

// Row r of a group is row group · rows + r, with the labels that the group's clients have.
TEST_F(SlotPoolTest, EvaluatesTheCentralTestSetAsEachGroupSeesIt) {
  context_.run.transform.concept_shift = ConceptShift::kLabelPermutation;
  context_.run.transform.concept_shift_groups = 3;
  const auto pool = Start(2);
  auto evaluation = std::make_shared<EvaluationContext>();
  evaluation->round = Round(1);
  evaluation->model = model_.view();
  const uint64_t rows = dataset_->info().test_examples;
  std::vector<fleet::EvaluationTask> tasks;
  for (uint64_t group = 0; group < 3; ++group)
    tasks.push_back({.fence = {1, group + 1}, .begin = group * rows, .end = (group + 1) * rows});
  pool->Enqueue(evaluation, tasks);
  ASSERT_TRUE(pool->WaitIdle());
  std::vector<double> losses(3);
  const Harvest harvest = *pool->TakeHarvest();
  for (const fleet::EvaluationResult& result : harvest.evaluations) {
    EXPECT_EQ(result.sums[0], static_cast<double>(rows));
    losses[result.task.begin / rows] = result.sums[1];
  }
  EXPECT_NE(losses[1], losses[0]);
  EXPECT_NE(losses[2], losses[0]);
  EXPECT_NE(losses[2], losses[1]);
}

TEST_F(SlotPoolTest, SaysWhichEvaluationIsImpossible) {
  const auto pool = Start(1);
  auto evaluation = std::make_shared<EvaluationContext>();
  evaluation->round = Round(3);
  evaluation->model = model_.view();
  pool->Enqueue(evaluation, {{.fence = {1, 1}, .begin = 0, .end = 1'000'000}});
  EXPECT_FALSE(pool->WaitIdle());
  EXPECT_THAT(pool->error().ToString(), HasSubstr("after round 3"));
}

TEST_F(SlotPoolTest, DoesNotStartWithABackEndThatDoesNotExist) {
  context_.backend.name = "/quantum.so";
  const auto pool = SlotPool::Start(context_, *dataset_, 2, {}, marker_);
  EXPECT_THAT(pool.status().ToString(), HasSubstr("quantum"));
}

}  // namespace
}  // namespace macaw::worker
