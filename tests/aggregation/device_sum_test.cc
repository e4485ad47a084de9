// A device's sum has the bits of the host's, for any values, teams and grouping.
#include "aggregation/device_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "testing/fake_device.h"
#include "testing/test_devices.h"
#include "tests/aggregation/cohort.h"
#include "tests/aggregation/device_sums.h"
#ifdef MACAW_HAVE_CUDA
#include "aggregation/cuda/sum_kernels.h"
#endif

namespace macaw::aggregation {
namespace {

using device::Memory;
using ::testing::HasSubstr;
using testing_support::FakeDevice;
using testing_support::FakeDeviceOptions;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<device::CudaKernel> GpuKernels() {
#ifdef MACAW_HAVE_CUDA
  return SumCudaKernels();
#else
  return {};
#endif
}

class DeviceSumTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    made_ = testing_support::MakeTestDevice(GetParam(), SumHostKernels(), GpuKernels());
    if (made_.device == nullptr) GTEST_SKIP() << made_.skip;
  }
  device::Device& device() { return *made_.device; }

 private:
  testing_support::TestDevice made_;
};

TEST_P(DeviceSumTest, HasTheBitsOfTheHostsForEveryReductionAndGrouping) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const TestCohort cohort(AllKinds(static_cast<int64_t>(1 + 131 * seed)), 11, seed);
    const SumResult host = HostSum(cohort);
    for (const size_t group : {1, 2, 5, 11})
      ExpectSame(DeviceResult(device(), cohort, group), host);
  }
}

// The parameters times a factor, the buffers without.
TEST_P(DeviceSumTest, AddsWhatIsDescribedWithTheBitsOfTheVectorThatItDescribes) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {301}},
                              {.name = "mean", .shape = {40}, .group = Group::kBuffer}},
                             DType::kF32);
  const std::vector<ChannelSpec> channels = {
      {.name = "delta", .layout = layout, .reduction = Reduction::kWeightedMean},
      {.name = "largest", .layout = layout, .reduction = Reduction::kMax}};
  TestCohort ends(channels, 9, 5);
  // Client 4's vector is within the bound, and what it describes is not.
  ends.clients[4].vectors[1].As<float>()[3] = 65536;
  ends.clients[7].vectors[0].As<float>()[3] = -1;
  TestCohort described(channels, 9, 5);
  for (size_t i = 0; i < 9; ++i) {
    for (size_t c = 0; c < 2; ++c)
      described.clients[i].vectors[c] = ends.clients[i].vectors[c].Clone();
  }
  const FlatVector from = FlatVector::CopyOf(ends.clients[7].vectors[0].view(), layout);
  const auto factor = [](size_t client) { return client % 4 == 0 ? 1 : 1 / (1.7F + client); };
  for (size_t i = 0; i < described.clients.size(); ++i) {
    for (FlatVector& vector : described.clients[i].vectors) {
      for (size_t k = 0; k < layout->size(); ++k) {
        float& value = vector.As<float>()[k];
        if (i != 2) value = value - from.As<float>()[k];
        if (k < layout->parameter_size()) value = value * factor(i);
      }
    }
  }
  const SumResult host = HostSum(described);
  SumResult result;
  const std::unique_ptr<device::Queue> queue = *device().MakeQueue();
  const Memory minus = *device().Allocate(layout->bytes());
  queue->CopyIn(minus.data(), from.view().bytes);
  OnDevice vectors(device(), *queue, ends.clients);
  for (size_t i = 0; i < 9; ++i)
    vectors.Describe(i, i == 2 ? nullptr : minus.As<float>(), factor(i));
  auto sum = *DeviceSum::Make(device(), *queue, channels, ends.order, 9);
  ASSERT_TRUE(sum->Add(vectors.Of(0, 9)).ok());
  result.answers = *sum->Settle();
  ExactSum whole = ends.Empty();
  ASSERT_TRUE(sum->MoveTo(whole).ok());
  result.bytes = Bytes(whole);
  EXPECT_THAT(host.answers[4].ToString(), HasSubstr("65537"));
  ExpectSame(result, host);
}

TEST_P(DeviceSumTest, IsRenewedForOtherChannelsAndOrders) {
  const std::unique_ptr<device::Queue> queue = *device().MakeQueue();
  const TestCohort first(AllKinds(50), 5, 1);
  auto sum = *DeviceSum::Make(device(), *queue, first.channels, first.order, 5);
  {
    const OnDevice vectors(device(), *queue, first.clients);
    ASSERT_TRUE(sum->Add(vectors.Of(0, 5)).ok());  // neither settled nor moved
    ASSERT_TRUE(queue->Wait().ok());
  }
  // The same sizes, larger ones, fewer channels, the first ones again.
  std::vector<TestCohort> cohorts;
  cohorts.emplace_back(AllKinds(50), 4, 2);
  cohorts.emplace_back(AllKinds(900), 5, 3);
  cohorts.emplace_back(std::vector<ChannelSpec>{AllKinds(900)[1]}, 3, 4);
  cohorts.emplace_back(AllKinds(50), 5, 5);
  for (const TestCohort& cohort : cohorts) {
    ASSERT_TRUE(sum->Renew(cohort.channels, cohort.order).ok());
    EXPECT_EQ(sum->clients(), 0);
    const OnDevice vectors(device(), *queue, cohort.clients);
    ASSERT_TRUE(sum->Add(vectors.Of(0, cohort.clients.size())).ok());
    SumResult result;
    result.answers = *sum->Settle();
    ExactSum whole = cohort.Empty();
    ASSERT_TRUE(sum->MoveTo(whole).ok());
    result.bytes = Bytes(whole);
    ExpectSame(result, HostSum(cohort));
  }
}

TEST_P(DeviceSumTest, MeasuresVectorsOfManyPieces) {
  // A piece has 2^16 elements.
  TestCohort cohort({{.name = "w", .layout = Vector((5 << 16) + 3, DType::kF32), .bound = 100}}, 4,
                    7);
  cohort.clients[1].vectors[0].As<float>()[5 << 16] = -101;
  cohort.clients[1].vectors[0].As<float>()[(5 << 16) + 1] = kNan;  // behind the first one
  cohort.clients[2].vectors[0].As<float>()[(3 << 16) - 1] = kFloatInfinity;
  const SumResult host = HostSum(cohort);
  EXPECT_THAT(host.answers[1].message(), HasSubstr("element 327680 is -101"));
  ExpectSame(DeviceResult(device(), cohort, 3), host);
}

// Values on which rounding, checking and ordering could differ. All are finite and in bound.
float EdgeValue(RandomStream& random, int bits, double bound) {
  const auto any = [&random](uint64_t count) { return static_cast<uint32_t>(random.Below(count)); };
  float value = 0;
  switch (any(8)) {
    case 0:
      value = std::bit_cast<float>(any(0x800000));  // denormal
      break;
    case 1:
      value = any(2) == 0 ? 0.0F : -0.0F;
      break;
    case 2:  // halfway between two integers of the grid, for clients whose m·w is odd
    case 3:
      value = static_cast<float>(std::ldexp(2.0 * any(1 << 23) + 1, -bits - 1));
      break;
    case 4:  // the largest that is in bound, and its neighbours below
      value = static_cast<float>(bound);
      if (double{value} > bound) value = std::nextafter(value, 0.0F);
      for (uint32_t i = any(3); i > 0; --i) value = std::nextafter(value, 0.0F);
      break;
    case 5:  // any bits
      value = std::bit_cast<float>(static_cast<uint32_t>(random.Below(uint64_t{1} << 32)));
      break;
    default:
      value = static_cast<float>(random.Normal() * bound / 8);
  }
  if (!(std::fabs(double{value}) <= bound)) value = 0;
  return any(2) == 0 ? value : -value;
}

TEST_P(DeviceSumTest, HasTheBitsOfTheHostsOnTenMillionValues) {
  // Eight runs of 25 clients with 50,000 values, for all of which the grid differs.
  for (uint64_t run = 0; run < 8; ++run) {
    RandomStream random({.seed = run});
    const Reduction kinds[] = {Reduction::kWeightedMean, Reduction::kMean, Reduction::kFixedSum,
                               Reduction::kMax};
    const double bound = run % 3 == 0 ? 65536 : std::ldexp(0.7, static_cast<int>(run) * 5 - 10);
    TestCohort cohort({{.name = "w",
                        .layout = Vector(50000, DType::kF32),
                        .reduction = kinds[run % 4],
                        .bound = bound}},
                      25, run);
    const int bits = MakeGrid(cohort.channels[0], cohort.order)->bits;
    for (TestClient& client : cohort.clients) {
      for (float& value : client.vectors[0].As<float>()) value = EdgeValue(random, bits, bound);
    }
    // Some must be refused, each for another reason.
    const float above = std::nextafter(static_cast<float>(bound), kFloatInfinity);
    const float bad[] = {kNan, -kNan, kFloatInfinity, -kFloatInfinity, above, -above};
    for (size_t i = 0; i < std::size(bad); ++i)
      cohort.clients[3 * i].vectors[0].As<float>()[random.Below(50000)] = bad[i];
    const SumResult host = HostSum(cohort);
    EXPECT_EQ(std::ranges::count_if(host.answers, [](const auto& s) { return !s.ok(); }), 6);
    ExpectSame(DeviceResult(device(), cohort, 1 + random.Below(25)), host);
  }
}

TEST_P(DeviceSumTest, AddsNothingOfAClientThatAnyChannelRefuses) {
  TestCohort cohort(
      {{.name = "a", .layout = Vector(40, DType::kF32), .bound = 100},
       {.name = "tau", .layout = Vector(1, DType::kF64), .bound = 100},
       {.name = "b", .layout = Vector(90, DType::kF32), .bound = 100},
       {.name = "top", .layout = Vector(5, DType::kF32), .reduction = Reduction::kMax}},
      9, 3);
  cohort.clients[1].vectors[0].As<float>()[39] = kNan;
  cohort.clients[2].vectors[2].As<float>()[0] = 1000;
  cohort.clients[3].vectors[3].As<float>()[4] = kFloatInfinity;
  cohort.clients[4].vectors[1].As<double>()[0] = 101;
  cohort.clients[5].vectors[0].As<float>()[0] = kNan;  // both: the first channel's error is told
  cohort.clients[5].vectors[2].As<float>()[0] = kNan;
  cohort.clients[6].weight = cohort.order.max_weight + 1;
  cohort.clients[7].multiplicity = 0;
  const SumResult host = HostSum(cohort);
  for (const size_t group : {1, 4, 9}) ExpectSame(DeviceResult(device(), cohort, group), host);
}

TEST_P(DeviceSumTest, MergesSumsOfOneDeviceInAnyTree) {
  const TestCohort cohort(AllKinds(77), 12, 5);
  const SumResult host = HostSum(cohort);
  const std::unique_ptr<device::Queue> first = *device().MakeQueue(),
                                       second = *device().MakeQueue();
  const OnDevice on_first(device(), *first, cohort.clients);
  const OnDevice on_second(device(), *second, cohort.clients);
  auto a = *DeviceSum::Make(device(), *first, cohort.channels, cohort.order, 12);
  auto b = *DeviceSum::Make(device(), *second, cohort.channels, cohort.order, 12);
  ExactSum whole = cohort.Empty();
  // Twice, because a sum is used again in the next round.
  for (int round = 0; round < 2; ++round) {
    whole = cohort.Empty();
    ASSERT_TRUE(a->Add(on_first.Of(0, 5)).ok());
    ASSERT_TRUE(b->Add(on_second.Of(5, 9)).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(a->Merge(*b)));  // not settled
    EXPECT_TRUE(absl::IsFailedPrecondition(a->MoveTo(whole)));
    ASSERT_TRUE(a->Settle().ok());
    ASSERT_TRUE(b->Settle().ok());
    EXPECT_EQ(b->clients(), 4);
    ASSERT_TRUE(a->Merge(*b).ok());
    EXPECT_EQ(b->clients(), 0);
    EXPECT_EQ(a->clients(), 9);
    // The rest comes from the host, and from a sum that was emptied.
    ASSERT_TRUE(cohort.clients[9].AddTo(whole).ok());
    ASSERT_TRUE(b->Add(on_second.Of(10, 12)).ok());
    ASSERT_TRUE(b->Settle().ok());
    ASSERT_TRUE(b->MoveTo(whole).ok());
    ASSERT_TRUE(a->MoveTo(whole).ok());
    EXPECT_EQ(Bytes(whole), host.bytes);
  }
}

TEST_P(DeviceSumTest, RefusesMoreThanThePlannedTotals) {
  const TestCohort cohort(AllKinds(5), 4, 2);
  const std::unique_ptr<device::Queue> queue = *device().MakeQueue();
  const OnDevice vectors(device(), *queue, cohort.clients);
  auto sum = *DeviceSum::Make(device(), *queue, cohort.channels, cohort.order, 8);
  ASSERT_TRUE(sum->Add(vectors.Of(0, 4)).ok());
  ASSERT_TRUE(sum->Add(vectors.Of(2, 3)).ok());
  const std::vector<absl::Status> answers = *sum->Settle();
  ASSERT_EQ(answers.size(), 5);
  EXPECT_TRUE(answers[3].ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(answers[4])) << answers[4];
  EXPECT_THAT(answers[4].message(), HasSubstr("added twice"));
  // Also where two sums together pass the totals; both stay as they were.
  ExactSum whole = cohort.Empty();
  ASSERT_TRUE(cohort.clients[1].AddTo(whole).ok());
  const std::vector<std::byte> before = Bytes(whole);
  EXPECT_TRUE(absl::IsFailedPrecondition(sum->MoveTo(whole)));
  EXPECT_EQ(Bytes(whole), before);
  whole = cohort.Empty();
  ASSERT_TRUE(sum->MoveTo(whole).ok());
  EXPECT_EQ(Bytes(whole), HostSum(cohort).bytes);
}

TEST_P(DeviceSumTest, TakesNoMorePendingClientsThanItWasMadeFor) {
  const TestCohort cohort(AllKinds(5), 4, 2);
  const std::unique_ptr<device::Queue> queue = *device().MakeQueue();
  const OnDevice vectors(device(), *queue, cohort.clients);
  auto sum = *DeviceSum::Make(device(), *queue, cohort.channels, cohort.order, 3);
  EXPECT_TRUE(absl::IsFailedPrecondition(sum->Add(vectors.Of(0, 4))));
  ASSERT_TRUE(sum->Add(vectors.Of(0, 3)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(sum->Add(vectors.Of(3, 4))));
  ASSERT_TRUE(sum->Settle().ok());
  EXPECT_TRUE(sum->Add(vectors.Of(3, 4)).ok());
}

INSTANTIATE_TEST_SUITE_P(OnA, DeviceSumTest,
                         ::testing::ValuesIn(testing_support::TestDeviceNames()),
                         [](const auto& info) { return info.param; });

TEST(DeviceSum, HasTheSameBitsForAnyTeamAndNumberOfBlocks) {
  const TestCohort cohort(AllKinds(700), 7, 9);
  const SumResult host = HostSum(cohort);
  for (const uint32_t threads : {1u, 2u, 5u, 8u}) {
    for (const uint32_t processors : {1u, 7u}) {
      FakeDeviceOptions options;
      options.threads = threads;
      options.processors = processors;
      options.seed = threads;
      FakeDevice device(SumHostKernels(), options);
      ExpectSame(DeviceResult(device, cohort, 4), host);
    }
  }
}

TEST(DeviceSum, DoesNotWaitBeforeItIsSettled) {
  const TestCohort cohort(AllKinds(20), 6, 9);
  FakeDevice device(SumHostKernels());
  const auto queue = *device.MakeQueue();
  const OnDevice vectors(device, *queue, cohort.clients);
  auto sum = *DeviceSum::Make(device, *queue, cohort.channels, cohort.order, 6);
  const uint64_t before = device.waits();
  ASSERT_TRUE(sum->Add(vectors.Of(0, 3)).ok());
  ASSERT_TRUE(sum->Add(vectors.Of(3, 6)).ok());
  EXPECT_EQ(device.waits(), before);
  ASSERT_TRUE(sum->Settle().ok());
  EXPECT_EQ(device.waits(), before + 1);
}

TEST(DeviceSum, SaysThatItsDeviceIsLostOrFull) {
  const TestCohort cohort(AllKinds(20), 6, 9);
  FakeDevice device(SumHostKernels());
  const auto queue = *device.MakeQueue();
  const OnDevice vectors(device, *queue, cohort.clients);
  device.FailAllocations(3);
  EXPECT_TRUE(absl::IsResourceExhausted(
      DeviceSum::Make(device, *queue, cohort.channels, cohort.order, 6).status()));
  auto sum = *DeviceSum::Make(device, *queue, cohort.channels, cohort.order, 6);
  ASSERT_TRUE(sum->Add(vectors.Of(0, 3)).ok());
  device.LoseAfter(2);
  EXPECT_TRUE(absl::IsUnavailable(sum->Settle().status()));
}

}  // namespace
}  // namespace macaw::aggregation
