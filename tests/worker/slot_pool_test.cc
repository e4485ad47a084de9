#include "worker/slot_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/asynchronous.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "tests/worker/synthetic_run.h"

namespace macaw::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing_support::Registry;
using testing_support::SyntheticClients;

// As a device does: two lanes serve all slots, and a trainer takes up to five clients at once.
class SideBySide final : public training::Backend {
 public:
  std::string name() const override { return "side-by-side"; }
  absl::Status Supports(const training::TrainerSetup&) const override { return absl::OkStatus(); }
  absl::StatusOr<NumericProfile> Profile(const training::TrainerSetup& setup) const override {
    return training::FusedBackend().Profile(setup);
  }
  absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainer(
      const training::TrainerSetup& setup) const override;
  absl::StatusOr<uint32_t> LanesFor(const training::TrainerSetup&, uint32_t slots) const override {
    return std::min(slots, 2u);
  }
  std::string Report() const override { return ""; }

  mutable std::atomic<size_t> largest = 0;  // how many clients a trainer has had at once
  std::optional<ClientId> fails, broken;    // for itself, and as a fault of the node
};

class SideBySideTrainer final : public training::LocalTrainer {
 public:
  SideBySideTrainer(const SideBySide& backend, std::unique_ptr<training::LocalTrainer> each,
                    LayoutPtr layout)
      : backend_(backend), each_(std::move(each)), layout_(std::move(layout)) {}
  size_t turns_at_once() const override { return 5; }
  std::vector<training::TurnOutcome> RunMany(std::span<const training::Turn> turns) override {
    size_t largest = backend_.largest;
    while (turns.size() > largest &&
           !backend_.largest.compare_exchange_weak(largest, turns.size())) {
    }
    std::vector<training::TurnOutcome> outcomes;
    ends_.clear();
    for (const training::Turn& turn : turns) {
      outcomes.push_back(Run(*turn.plan, *turn.task));
      if (!outcomes.back().ok()) continue;
      for (training::StageOutcome& outcome : *outcomes.back()) {  // the next turn overwrites it
        ends_.push_back(FlatVector::CopyOf(outcome.end, layout_));
        outcome.end = std::as_const(ends_.back()).view();
      }
    }
    return outcomes;
  }
  training::TurnOutcome Run(const training::LocalPlan& plan,
                            const training::ClientTask& task) override {
    if (task.client == backend_.fails) return training::ClientFault("no battery");
    if (task.client == backend_.broken) return absl::UnavailableError("the device is lost");
    return each_->Run(plan, task);
  }
  absl::StatusOr<training::MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows,
                                                uint64_t begin, uint64_t end,
                                                uint32_t batch) override {
    return each_->Evaluate(model, rows, begin, end, batch);
  }
  std::string name() const override { return backend_.name(); }

 private:
  const SideBySide& backend_;
  const std::unique_ptr<training::LocalTrainer> each_;
  const LayoutPtr layout_;
  std::vector<FlatVector> ends_;
};

absl::StatusOr<std::unique_ptr<training::LocalTrainer>> SideBySide::MakeTrainer(
    const training::TrainerSetup& setup) const {
  MACAW_ASSIGN_OR_RETURN(auto each, training::FusedBackend().MakeTrainer(setup));
  return std::make_unique<SideBySideTrainer>(*this, std::move(each), setup.spec.layout);
}

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

class SlotPoolTest : public testing::Test {
 protected:
  SlotPoolTest() : dataset_(SyntheticClients()) {
    context_.run = testing_support::SyntheticRun(*dataset_, 1);
    context_.run.algorithm = *Registry().Complete(context_.run.algorithm);
    context_.epoch = 1;
    context_.backends = &testing_support::OnlyFused();
    context_.spec = *models::BuildSpec(context_.run.model, context_.run.dtype);
    Use(**Registry().Find("fedavg"));
    model_ = models::InitialModel(context_.spec, 1);
  }

  void Use(const algorithms::Description& rule) {
    const algorithms::Setup setup{.config = context_.run.algorithm,
                                  .layout = context_.spec.layout,
                                  .local = context_.run.local,
                                  .cohort = context_.run.cohort,
                                  .clients = context_.run.clients,
                                  .total_weight = TotalWeight(context_.run),
                                  .contribution_bound = context_.run.contribution_bound};
    context_.schema = *rule.schema(setup);
    context_.algorithm = *rule.client(setup);
  }

  std::unique_ptr<SlotPool> Start(uint32_t slots, std::vector<double> slowdown = {}) {
    auto pool =
        SlotPool::Start(context_, *dataset_, slots,
                        {.config = {.slowdown = std::move(slowdown)}, .run_slots = slots}, marker_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }

  std::shared_ptr<PhaseContext> Phase1() const {
    auto phase = std::make_shared<PhaseContext>();
    phase->round = Round(1);
    phase->vectors = {model_.view()};
    phase->order = {
        .max_weight = 100, .total_weight = 1200, .max_multiplicity = 1, .total_multiplicity = 12};
    phase->local = context_.run.local;
    return phase;
  }

  std::vector<fleet::Assignment> Assignments(uint64_t begin, uint64_t end) const {
    std::vector<fleet::Assignment> assignments;
    for (uint64_t k = begin; k < end; ++k) {
      assignments.push_back(
          {.client = ClientId(k),
           .place = k,
           .fence = {1, k + 1},
           .weight = static_cast<double>(dataset_->Examples(ClientId(k), data::Split::kTrain))});
    }
    return assignments;
  }

  Harvest TrainAll(uint32_t slots) {
    const auto pool = Start(slots);
    pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
    EXPECT_TRUE(pool->WaitIdle());
    Harvest harvest = *pool->TakeHarvest();
    EXPECT_EQ(pool->held(), 12u) << "until the harvest is committed";
    pool->Settle();
    EXPECT_EQ(pool->held(), 0u);
    return harvest;
  }

  // From now on clients are trained by `device_`.
  void UseDevice() {
    with_device_.Add(device_);
    context_.backends = &with_device_;
    context_.backend.name = device_.name();
  }

  std::unique_ptr<data::Dataset> dataset_;
  SideBySide device_;
  training::Backends with_device_{""};
  RunContext context_;
  FlatVector model_;
  RunningMarker marker_ = *RunningMarker::Open("", "", 0);
};

TEST_F(SlotPoolTest, AddsUpToTheSameBytesOnAnyNumberOfSlots) {
  const Harvest one = TrainAll(1), four = TrainAll(4);
  ASSERT_THAT(one.sums, SizeIs(1));
  EXPECT_THAT(one.included, SizeIs(12));
  EXPECT_THAT(four.included, SizeIs(12));
  EXPECT_EQ(fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(one.sums)).digest,
            fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(four.sums)).digest);
}

// evaluation.leave_one_out: the sums of the clients, each alone, are those of all together.
TEST_F(SlotPoolTest, KeepsClientsApartWhereARoundAsksForThat) {
  const Harvest together = TrainAll(2);
  context_.run.evaluation.leave_one_out = 2;
  EXPECT_THAT(TrainAll(2).alone, IsEmpty()) << "round 1 is not due";
  context_.run.evaluation.leave_one_out = 1;
  for (const bool device : {false, true}) {
    if (device) UseDevice();
    const Harvest apart = TrainAll(4);
    EXPECT_THAT(apart.sums, IsEmpty());
    EXPECT_THAT(apart.included, IsEmpty());
    ASSERT_THAT(apart.alone, SizeIs(12));
    const std::vector<aggregation::ChannelSpec> channels =
        algorithms::UpChannels(context_.schema, Phase(0));
    std::vector<aggregation::ExactSum> sums;
    for (const ClientAlone& one : apart.alone) {
      EXPECT_EQ(one.sum.clients(), 1u);
      EXPECT_EQ(one.sum.weight(), one.record.weight) << one.record.attempt.client;
      sums.push_back(*aggregation::ExactSum::Decode(
          std::make_shared<const AlignedBuffer>(one.sum.Encode()), channels, Phase1()->order));
    }
    EXPECT_EQ(fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(sums)).digest,
              fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(together.sums)).digest);
  }
}

// evaluation.unlearn: two clients are alone, and the rest has one sum; together they are the same.
TEST_F(SlotPoolTest, KeepsTheClientsApartThatARunAsksFor) {
  const Harvest together = TrainAll(2);
  context_.run.evaluation.unlearn = {3, 7};
  for (const bool device : {false, true}) {
    if (device) UseDevice();
    Harvest apart = TrainAll(4);
    ASSERT_THAT(apart.alone, SizeIs(2));
    EXPECT_THAT(apart.included, SizeIs(10));
    for (const fleet::ClientRecord& record : apart.included)
      EXPECT_TRUE(record.attempt.client != ClientId(3) && record.attempt.client != ClientId(7));
    std::vector<aggregation::ExactSum> sums = std::move(apart.sums);
    for (ClientAlone& one : apart.alone) {
      EXPECT_EQ(one.sum.clients(), 1u);
      EXPECT_TRUE(one.record.attempt.client == ClientId(3) ||
                  one.record.attempt.client == ClientId(7));
      sums.push_back(std::move(one.sum));
    }
    EXPECT_EQ(fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(sums)).digest,
              fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(together.sums)).digest);
  }
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
  Endless endless;
  training::Backends backends("");
  backends.Add(endless);
  context_.backends = &backends;
  context_.backend.name = endless.name();
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

Digest SumOf(const Harvest& harvest) {
  return fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(harvest.sums)).digest;
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

TEST_F(SlotPoolTest, ADeviceTrainsClientsSideBySideToTheSameBytes) {
  const Harvest one = TrainAll(1);
  UseDevice();
  const Harvest many = TrainAll(8);
  EXPECT_EQ(device_.largest, 4u) << "of 8 slots on two lanes";
  EXPECT_THAT(many.included, SizeIs(12));
  EXPECT_EQ(fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(one.sums)).digest,
            fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(many.sums)).digest);
  for (const fleet::ClientRecord& record : many.included) {
    EXPECT_LT(record.slot, 8u);
    EXPECT_GT(record.train_seconds, 0);
  }
}

TEST_F(SlotPoolTest, ALaneTakesItsShareAndNoMoreThanItsTrainerLikes) {
  UseDevice();
  const auto pool = Start(12);
  pool->Enqueue(Phase1(), Assignments(0, 6), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_LE(device_.largest, 3u) << "half of six clients, for two lanes";
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(6));
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_EQ(device_.largest, 5u) << "a lane has six slots, its trainer likes five clients";
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(12));
}

TEST_F(SlotPoolTest, IdleSlotsAreThoseOfIdleLanes) {
  UseDevice();
  const auto pool = Start(8);
  EXPECT_EQ(pool->idle(), 8u);
  ASSERT_TRUE(pool->WaitForIdleSlot());
}

TEST_F(SlotPoolTest, AClientThatFailsLeavesTheOthersOfItsTurn) {
  UseDevice();
  device_.fails = ClientId(2);
  const Harvest harvest = TrainAll(8);
  EXPECT_THAT(harvest.included, SizeIs(11));
  ASSERT_THAT(harvest.left_out, SizeIs(1));
  EXPECT_EQ(harvest.left_out[0].attempt.client, ClientId(2));
  EXPECT_THAT(harvest.left_out[0].message, HasSubstr("no battery"));
}

TEST_F(SlotPoolTest, ALostDeviceEndsTheNodesWork) {
  UseDevice();
  device_.broken = ClientId(2);
  const auto pool = Start(8);
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  EXPECT_FALSE(pool->WaitIdle());
  EXPECT_THAT(pool->error().ToString(), HasSubstr("client 2: the device is lost"));
}

TEST_F(SlotPoolTest, DoesNotStartWithABackEndThatDoesNotExist) {
  context_.backend.name = "/quantum.so";
  const auto pool = SlotPool::Start(context_, *dataset_, 2, {}, marker_);
  EXPECT_THAT(pool.status().ToString(), HasSubstr("quantum"));
}

}  // namespace
}  // namespace macaw::worker
