// A pool whose lanes train several clients side by side, as a device does: the bytes are those of
// slots that train one client after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "testing/temporary_folder.h"
#include "tests/worker/slot_pool_fixture.h"
#include "training/api/metrics.h"

namespace macaw::worker {
namespace {

using fixtures::SlotPoolTest;
using fixtures::SumOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
    return std::min(slots, lanes.load());
  }
  std::string Report() const override { return ""; }

  mutable std::atomic<uint32_t> lanes = 2;
  mutable std::atomic<size_t> largest = 0;  // how many clients a trainer has had at once
  std::optional<ClientId> fails, broken;    // for itself, and as a fault of the node
  std::optional<ClientId> diverges;         // with this sum of losses
  double loss = 0;
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
    training::TurnOutcome outcomes = each_->Run(plan, task);
    if (task.client == backend_.diverges) outcomes->back().sums[1] = backend_.loss;
    return outcomes;
  }
  absl::StatusOr<training::MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows,
                                                uint64_t begin, uint64_t end,
                                                uint32_t batch) override {
    MACAW_ASSIGN_OR_RETURN(training::MetricSums sums,
                           each_->Evaluate(model, rows, begin, end, batch));
    if (backend_.loss != 0) sums[1] = backend_.loss;
    return sums;
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

// evaluation.leave_one_out: the sums of the clients, each alone, are those of all together.
TEST_F(SlotPoolTest, KeepsClientsApartWhereARoundAsksForThat) {
  const Harvest together = TrainAll(2);
  context_.run.evaluation.leave_one_out = 2;
  EXPECT_THAT(TrainAll(2).alone, IsEmpty()) << "round 1 is not due";
  context_.run.evaluation.leave_one_out = 1;
  const SideBySide device;
  for (const bool on_device : {false, true}) {
    if (on_device) UseBackend(device);
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
              SumOf(together));
  }
}

TEST_F(SlotPoolTest, ADeviceTrainsClientsSideBySideToTheSameBytes) {
  const Harvest one = TrainAll(1);
  const SideBySide device;
  UseBackend(device);
  const Harvest many = TrainAll(8);
  EXPECT_EQ(device.largest, 4u) << "of 8 slots on two lanes";
  EXPECT_THAT(many.included, SizeIs(12));
  EXPECT_EQ(SumOf(many), SumOf(one));
  for (const fleet::ClientRecord& record : many.included) {
    EXPECT_LT(record.slot, 8u);
    EXPECT_GT(record.train_seconds, 0);
  }
}

// Each slot has a place in the marker's file, which has no others.
TEST_F(SlotPoolTest, LanesShareSlotsThatTheyDoNotDivide) {
  const SideBySide device;
  UseBackend(device);
  const testing_support::TemporaryFolder folder;
  const auto run = [&](uint32_t slots) {
    marker_ = *RunningMarker::Open(folder.path(), "device", slots);
    const auto pool = Start(slots);
    EXPECT_EQ(pool->idle(), slots);
    pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
    EXPECT_TRUE(pool->WaitIdle());
    EXPECT_EQ(pool->idle(), slots);
    return *pool->TakeHarvest();
  };
  for (const uint32_t lanes : {2u, 3u}) {
    device.lanes = lanes;
    for (const uint32_t slots : {3u, 5u, 7u, 8u}) {
      device.largest = 0;
      const Harvest harvest = run(slots);
      EXPECT_LE(device.largest, (slots + lanes - 1) / lanes);
      ASSERT_THAT(harvest.included, SizeIs(12));
      for (const fleet::ClientRecord& record : harvest.included) EXPECT_LT(record.slot, slots);
    }
  }
}

TEST_F(SlotPoolTest, ALaneTakesItsShareAndNoMoreThanItsTrainerLikes) {
  const SideBySide device;
  UseBackend(device);
  const auto pool = Start(12);
  pool->Enqueue(Phase1(), Assignments(0, 6), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_LE(device.largest, 3u) << "half of six clients, for two lanes";
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(6));
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  ASSERT_TRUE(pool->WaitIdle());
  EXPECT_EQ(device.largest, 5u) << "a lane has six slots, its trainer likes five clients";
  EXPECT_THAT(pool->TakeHarvest()->included, SizeIs(12));
}

TEST_F(SlotPoolTest, IdleSlotsAreThoseOfIdleLanes) {
  const SideBySide device;
  UseBackend(device);
  const auto pool = Start(8);
  EXPECT_EQ(pool->idle(), 8u);
  ASSERT_TRUE(pool->WaitForIdleSlot());
}

TEST_F(SlotPoolTest, AClientThatFailsLeavesTheOthersOfItsTurn) {
  SideBySide device;
  UseBackend(device);
  device.fails = ClientId(2);
  const Harvest harvest = TrainAll(8);
  EXPECT_THAT(harvest.included, SizeIs(11));
  ASSERT_THAT(harvest.left_out, SizeIs(1));
  EXPECT_EQ(harvest.left_out[0].attempt.client, ClientId(2));
  EXPECT_THAT(harvest.left_out[0].message, HasSubstr("no battery"));
}

// The server takes no sum beyond the limit, so a part with it would be refused.
TEST_F(SlotPoolTest, LeavesOutAClientWhoseLossIsFiniteAndBeyondTheLimit) {
  SideBySide device;
  UseBackend(device);
  device.diverges = ClientId(2);
  for (const double within : {training::kLargestSum, -training::kLargestSum}) {
    device.loss = within;
    EXPECT_THAT(TrainAll(8).included, SizeIs(12)) << within;
  }
  for (const double beyond : {1e60, -1e60}) {
    device.loss = beyond;
    const Harvest one = TrainAll(1), many = TrainAll(8);
    for (const Harvest* harvest : {&one, &many}) {
      EXPECT_THAT(harvest->included, SizeIs(11));
      ASSERT_THAT(harvest->left_out, SizeIs(1));
      EXPECT_EQ(harvest->left_out[0].attempt.client, ClientId(2));
      EXPECT_EQ(harvest->left_out[0].reason, fleet::LeftOutReason::kNotFinite);
      EXPECT_THAT(harvest->left_out[0].message, HasSubstr("beyond 1e+50"));
    }
    EXPECT_EQ(SumOf(many), SumOf(one));
  }
}

TEST_F(SlotPoolTest, AnEvaluationsLossBeyondTheLimitIsInfinite) {
  SideBySide device;
  UseBackend(device);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& [loss, told] : {std::pair(training::kLargestSum, training::kLargestSum),
                                   std::pair(1e60, kInfinity), std::pair(-1e60, -kInfinity)}) {
    device.loss = loss;
    const auto pool = Start(1);
    auto evaluation = std::make_shared<EvaluationContext>();
    evaluation->round = Round(1);
    evaluation->model = model_.view();
    pool->Enqueue(
        evaluation,
        {{.fence = {1, 1}, .kind = fleet::EvaluationKind::kCentralTest, .begin = 0, .end = 2},
         {.fence = {1, 2}, .kind = fleet::EvaluationKind::kClientTest, .client = ClientId(2)}});
    ASSERT_TRUE(pool->WaitIdle());
    const Harvest harvest = *pool->TakeHarvest();
    ASSERT_THAT(harvest.evaluations, SizeIs(2));
    for (const fleet::EvaluationResult& result : harvest.evaluations)
      EXPECT_EQ(result.sums[1], result.sums[0] > 0 ? told : 0);
  }
}

TEST_F(SlotPoolTest, ALostDeviceEndsTheNodesWork) {
  SideBySide device;
  UseBackend(device);
  device.broken = ClientId(2);
  const auto pool = Start(8);
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  EXPECT_FALSE(pool->WaitIdle());
  EXPECT_THAT(pool->error().ToString(), HasSubstr("client 2: the device is lost"));
}

TEST_F(SlotPoolTest, AfterAnErrorNothingIsBegun) {
  SideBySide device;
  device.lanes = 1;
  UseBackend(device);
  device.broken = ClientId(0);
  const auto pool = Start(1);
  pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
  EXPECT_FALSE(pool->WaitIdle());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(pool->Queued(), SizeIs(11));
}

// evaluation.unlearn: two clients are alone, and the rest has one sum; together they are the same.
TEST_F(SlotPoolTest, KeepsTheClientsApartThatARunAsksFor) {
  const Harvest together = TrainAll(2);
  context_.run.evaluation.unlearn = {3, 7};
  const SideBySide device;
  for (const bool on_device : {false, true}) {
    if (on_device) UseBackend(device);
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
              SumOf(together));
  }
}

}  // namespace
}  // namespace macaw::worker
