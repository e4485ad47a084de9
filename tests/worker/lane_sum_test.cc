// A lane's sum has the same bits wherever its clients are added.
#include "worker/lane_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/random.h"
#include "testing/fake_device.h"

namespace macaw::worker {
namespace {

using aggregation::ChannelSpec;
using aggregation::ExactSum;
using aggregation::Reduction;
using algorithms::Displacement;
using algorithms::UpValue;
using macaw::testing_support::FakeDevice;
using testing::ElementsAre;

// Ends that a trainer left on a device.
class Left final : public training::LeftOnDevice {
 public:
  Left(FakeDevice& device, device::Queue& queue, const std::vector<FlatVector>& ends)
      : queue_(queue) {
    for (const FlatVector& end : ends) {
      on_device_.push_back(*device.Allocate(end.layout()->bytes()));
      queue.CopyIn(on_device_.back().data(), end.view().bytes);
      layout_ = end.layout();
    }
    EXPECT_TRUE(queue.Wait().ok());
  }
  absl::Status Fetch() override {
    ++fetches;
    const size_t bytes = layout_->bytes();
    on_host_.resize(on_device_.size() * bytes);
    for (size_t i = 0; i < on_device_.size(); ++i)
      queue_.CopyOut(std::span(on_host_).subspan(i * bytes, bytes), on_device_[i].data());
    return queue_.Wait();
  }
  const std::byte* on_host() const override { return on_host_.empty() ? nullptr : on_host_.data(); }
  training::EndVector operator[](size_t i) {
    return {layout_.get(), i * layout_->bytes(), on_device_[i].As<float>(), *this};
  }

  int fetches = 0;

 private:
  device::Queue& queue_;
  std::vector<device::Memory> on_device_;
  LayoutPtr layout_;
  std::vector<std::byte> on_host_;
};

class LaneSumTest : public testing::Test {
 protected:
  static constexpr size_t kClients = 8;

  LaneSumTest() {
    layout_ = *ParameterLayout::Make({{.name = "weight", .shape = {50}},
                                      {.name = "mean", .shape = {9}, .group = Group::kBuffer}},
                                     DType::kF32);
    channels_ = {{.name = "delta", .layout = layout_, .reduction = Reduction::kWeightedMean},
                 {.name = "tau",
                  .layout = ParameterLayout::Scalars("tau", 1, DType::kF64),
                  .reduction = Reduction::kMean}};
    order_ = {.max_weight = kClients,
              .total_weight = kClients * kClients,
              .max_multiplicity = 1,
              .total_multiplicity = kClients};
    RandomStream random({.seed = 3});
    const auto draw = [&] {
      FlatVector vector(layout_);
      for (float& value : vector.As<float>()) value = static_cast<float>(random.Normal());
      return vector;
    };
    model_ = draw();
    for (size_t i = 0; i < kClients; ++i) {
      ends_.push_back(draw());
      taus_.emplace_back(channels_[1].layout);
      taus_.back().As<double>()[0] = random.Normal();
    }
    ends_[2].As<float>()[7] = 1e6F;  // beyond the bound
  }

  std::vector<UpValue> Of(size_t client, const training::EndVector& end) {
    const double factor = client % 2 == 0 ? 1 : 0.3;
    return {Displacement(end, std::as_const(model_).view(), factor),
            std::as_const(taus_[client]).view()};
  }

  // What the clients [begin, end) get as an answer; on the host without `left`.
  std::vector<absl::StatusCode> Add(LaneSum& sum, Left* left, size_t begin, size_t end) {
    EXPECT_TRUE(sum.Open(channels_, order_).ok());
    std::vector<std::vector<UpValue>> values;
    for (size_t i = begin; i < end; ++i) {
      values.push_back(Of(i, left != nullptr ? (*left)[i] : training::EndVector(ends_[i].view())));
    }
    for (size_t i = begin; i < end; ++i) {
      const absl::Status added =
          sum.Add({ClientId(i), static_cast<double>(1 + i), 1}, values[i - begin], workspace_)
              .status();
      EXPECT_TRUE(added.ok()) << added;
    }
    const auto settled = sum.Settle();
    EXPECT_TRUE(settled.ok()) << settled.status();
    std::vector<absl::StatusCode> codes;
    for (const absl::Status& status : *settled) {
      codes.push_back(status.code());
      EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "client 2")) << status;
    }
    return codes;
  }

  std::vector<std::byte> BytesOf(std::vector<ExactSum> sums) {
    ExactSum whole = *ExactSum::Make(channels_, order_);
    for (ExactSum& sum : sums) EXPECT_TRUE(whole.Merge(std::move(sum)).ok());
    const AlignedBuffer bytes = whole.Encode();
    return {bytes.bytes().begin(), bytes.bytes().end()};
  }

  std::vector<std::byte> OnHost() {
    LaneSum sum(std::nullopt, 1);
    Add(sum, nullptr, 0, kClients);
    std::vector<ExactSum> sums;
    sums.push_back(*sum.TakeHost());
    return BytesOf(std::move(sums));
  }

  LayoutPtr layout_;
  std::vector<ChannelSpec> channels_;
  aggregation::GridOrder order_;
  FlatVector model_;
  std::vector<FlatVector> ends_, taus_;
  algorithms::Workspace workspace_;
};

TEST_F(LaneSumTest, HasTheBitsOfTheHostAndFetchesNothing) {
  using enum absl::StatusCode;
  FakeDevice device(aggregation::SumHostKernels());
  const auto queue = *device.MakeQueue();
  Left left(device, *queue, ends_);
  LaneSum sum(training::DeviceSeat{&device, queue.get()}, kClients);
  for (int phase = 0; phase < 3; ++phase) {  // its memory is used again
    model_.As<float>()[0] += 1;
    EXPECT_THAT(Add(sum, &left, 0, 5), ElementsAre(kOk, kOk, kOutOfRange, kOk, kOk));
    EXPECT_THAT(Add(sum, &left, 5, kClients), ElementsAre(kOk, kOk, kOk));
    LaneSum* const lanes[] = {&sum};
    auto collected = LaneSum::Collect(lanes, nullptr);
    ASSERT_TRUE(collected.ok() && collected->has_value()) << collected.status();
    EXPECT_FALSE(sum.TakeHost().has_value());
    EXPECT_FALSE(sum.is_open());
    std::vector<ExactSum> sums;
    sums.push_back(**std::move(collected));
    EXPECT_EQ(BytesOf(std::move(sums)), OnHost());
  }
  EXPECT_EQ(left.fetches, 0);
}

// Some clients' vectors were computed on the host, as a rule with clipping does it.
TEST_F(LaneSumTest, AddsEachClientWhereItsVectorsAre) {
  FakeDevice device(aggregation::SumHostKernels());
  const auto queue = *device.MakeQueue();
  Left left(device, *queue, ends_);
  LaneSum sum(training::DeviceSeat{&device, queue.get()}, kClients);
  Add(sum, &left, 0, 4);
  Add(sum, nullptr, 4, kClients);
  LaneSum* const lanes[] = {&sum};
  std::vector<ExactSum> sums;
  sums.push_back(**LaneSum::Collect(lanes, nullptr));
  EXPECT_EQ(sums[0].clients(), 3);
  sums.push_back(*sum.TakeHost());
  EXPECT_EQ(sums[1].clients(), 4);
  EXPECT_EQ(BytesOf(std::move(sums)), OnHost());
}

TEST_F(LaneSumTest, AddsOnTheHostWhereTheDeviceHasNoMemory) {
  for (uint64_t fails = 0; fails < 8; ++fails) {
    FakeDevice device(aggregation::SumHostKernels());
    const auto queue = *device.MakeQueue();
    Left left(device, *queue, ends_);
    LaneSum sum(training::DeviceSeat{&device, queue.get()}, kClients);
    device.FailAllocations(fails, 100);
    Add(sum, &left, 0, kClients);
    EXPECT_EQ(left.fetches > 0, fails < 6) << fails;  // five of the sum, one of the model
    LaneSum* const lanes[] = {&sum};
    std::vector<ExactSum> sums;
    if (auto collected = *LaneSum::Collect(lanes, nullptr)) sums.push_back(*std::move(collected));
    if (auto host = sum.TakeHost()) sums.push_back(*std::move(host));
    EXPECT_EQ(BytesOf(std::move(sums)), OnHost()) << fails;
  }
}

// After an error the turns end whose vectors were added.
TEST_F(LaneSumTest, ForgetsWhatIsNotSettled) {
  FakeDevice device(aggregation::SumHostKernels());
  const auto queue = *device.MakeQueue();
  LaneSum sum(training::DeviceSeat{&device, queue.get()}, kClients);
  {
    Left left(device, *queue, ends_);
    ASSERT_TRUE(sum.Open(channels_, order_).ok());
    const std::vector<UpValue> there = Of(0, left[0]);
    ASSERT_TRUE(sum.Add({ClientId(0), 1, 1}, there, workspace_).ok());
    const std::vector<UpValue> here = Of(1, training::EndVector(ends_[1].view()));
    ASSERT_TRUE(sum.Add({ClientId(1), 2, 1}, here, workspace_).ok());
    sum.Forget();
  }
  const auto settled = sum.Settle();
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_TRUE(settled->empty());
}

TEST_F(LaneSumTest, CollectsLanesOfSeveralDevices) {
  for (const bool together : {false, true}) {
    FakeDevice first(aggregation::SumHostKernels()), second(aggregation::SumHostKernels());
    const auto collective = *device::MakeHostCollective({&first, &second});
    FakeDevice* const devices[] = {&first, &second, &first, &second};
    std::vector<std::unique_ptr<device::Queue>> queues;
    std::vector<std::unique_ptr<Left>> left;
    std::vector<std::unique_ptr<LaneSum>> sums;
    std::vector<LaneSum*> lanes;
    for (size_t lane = 0; lane < 4; ++lane) {
      queues.push_back(*devices[lane]->MakeQueue());
      left.push_back(std::make_unique<Left>(*devices[lane], *queues[lane], ends_));
      sums.push_back(std::make_unique<LaneSum>(
          training::DeviceSeat{devices[lane], queues[lane].get()}, kClients));
      lanes.push_back(sums[lane].get());
    }
    Add(*sums[0], left[0].get(), 0, 3);
    Add(*sums[1], left[1].get(), 3, 3);  // nobody
    Add(*sums[2], left[2].get(), 3, 5);
    Add(*sums[3], left[3].get(), 5, kClients);
    std::vector<ExactSum> whole;
    whole.push_back(**LaneSum::Collect(lanes, together ? collective.get() : nullptr));
    EXPECT_EQ(BytesOf(std::move(whole)), OnHost());
  }
}

TEST_F(LaneSumTest, SaysThatItsDeviceIsLost) {
  FakeDevice device(aggregation::SumHostKernels());
  const auto queue = *device.MakeQueue();
  Left left(device, *queue, ends_);
  LaneSum sum(training::DeviceSeat{&device, queue.get()}, kClients);
  ASSERT_TRUE(sum.Open(channels_, order_).ok());
  const std::vector<UpValue> values = Of(0, left[0]);
  ASSERT_TRUE(sum.Add({ClientId(0), 1, 1}, values, workspace_).ok());
  device.LoseAfter(0);
  EXPECT_TRUE(absl::IsUnavailable(sum.Settle().status()));
}

}  // namespace
}  // namespace macaw::worker
