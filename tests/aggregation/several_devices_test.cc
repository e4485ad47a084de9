// The sum of several devices of a host has the bits of one device's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "aggregation/device_sum.h"
#include "device/collective.h"
#include "testing/fake_device.h"
#include "tests/aggregation/cohort.h"
#include "tests/aggregation/device_sums.h"

namespace macaw::aggregation {
namespace {

using device::Collective;
using device::MakeHostCollective;
using device::Memory;
using testing_support::FakeDevice;
using testing_support::FakeDeviceOptions;

struct Host {
  explicit Host(const TestCohort& cohort, size_t count) {
    std::vector<device::Device*> all;
    for (size_t i = 0; i < count; ++i) {
      FakeDeviceOptions options;
      options.seed = i;
      devices.push_back(std::make_unique<FakeDevice>(SumHostKernels(), options));
      all.push_back(devices.back().get());
      queues.push_back(*devices[i]->MakeQueue());
      vectors.emplace_back(*devices[i], *queues[i], cohort.clients);
      sums.push_back(*DeviceSum::Make(*devices[i], *queues[i], cohort.channels, cohort.order, 100));
    }
    collective = *MakeHostCollective(all);
  }
  std::vector<DeviceSum*> Sums() const {
    std::vector<DeviceSum*> all;
    for (const auto& sum : sums) all.push_back(sum.get());
    return all;
  }
  std::vector<std::unique_ptr<FakeDevice>> devices;
  std::vector<std::unique_ptr<device::Queue>> queues;
  std::vector<OnDevice> vectors;
  std::vector<std::unique_ptr<DeviceSum>> sums;
  std::unique_ptr<Collective> collective;
};

TEST(DeviceSum, OfSeveralDevicesIsThatOfOne) {
  const TestCohort cohort(AllKinds(123), 13, 4);
  const std::vector<std::byte> expected = HostSum(cohort).bytes;
  for (const size_t devices : {1u, 2u, 5u}) {
    Host host(cohort, devices);
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < 13; ++i)
        ASSERT_TRUE(host.sums[i % devices]->Add(host.vectors[i % devices].Of(i, i + 1)).ok());
      ExactSum whole = cohort.Empty();
      EXPECT_TRUE(absl::IsFailedPrecondition(
          DeviceSum::MoveTogether(*host.collective, host.Sums(), whole)));
      for (const auto& sum : host.sums) ASSERT_TRUE(sum->Settle().ok());
      const absl::Status moved = DeviceSum::MoveTogether(*host.collective, host.Sums(), whole);
      ASSERT_TRUE(moved.ok()) << moved;
      EXPECT_EQ(Bytes(whole), expected) << devices;
    }
  }
}

TEST(DeviceSum, OfSeveralDevicesRefusesMoreThanThePlannedTotals) {
  const TestCohort cohort(AllKinds(9), 4, 4);
  Host host(cohort, 2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(host.sums[i]->Add(host.vectors[i].Of(0, 4)).ok());
    ASSERT_TRUE(host.sums[i]->Settle().ok());
  }
  ExactSum whole = cohort.Empty();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(DeviceSum::MoveTogether(*host.collective, host.Sums(), whole)));
  ASSERT_TRUE(host.sums[1]->MoveTo(whole).ok());  // as it was
  EXPECT_EQ(Bytes(whole), HostSum(cohort).bytes);
}

TEST(HostCollective, AddsMoreThanAPiece) {
  FakeDevice first(SumHostKernels()), second(SumHostKernels());
  const auto collective = *MakeHostCollective({&first, &second});
  EXPECT_FALSE(MakeHostCollective({}).ok());
  constexpr size_t kCount = (size_t{2} << 20) + 1000;  // integers; a piece has 2^21
  std::vector<int64_t> a(kCount), b(kCount), out(kCount);
  std::iota(a.begin(), a.end(), -1000);
  for (size_t i = 0; i < kCount; ++i) b[i] = static_cast<int64_t>(i * i) - (int64_t{1} << 40);
  const auto queue = *first.MakeQueue(), other = *second.MakeQueue();
  const Memory at = *first.Allocate(kCount * 8), bt = *second.Allocate(kCount * 8);
  const Memory to = *first.Allocate(kCount * 8);
  queue->CopyIn(at.data(), std::as_bytes(std::span(a)));
  other->CopyIn(bt.data(), std::as_bytes(std::span(b)));
  ASSERT_TRUE(queue->Wait().ok() && other->Wait().ok());
  for (const auto operation : {Collective::Operation::kSum, Collective::Operation::kMaximum}) {
    const int64_t* const parts[] = {at.As<int64_t>(), bt.As<int64_t>()};
    ASSERT_TRUE(collective->Reduce(operation, parts, to.As<int64_t>(), kCount).ok());
    queue->CopyOut(std::as_writable_bytes(std::span(out)), to.data());
    ASSERT_TRUE(queue->Wait().ok());
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[i],
                operation == Collective::Operation::kSum ? a[i] + b[i] : std::max(a[i], b[i]));
    }
  }
}

}  // namespace
}  // namespace macaw::aggregation
