// What a trainer or a sum may rely on, on every device: the fake one, a GPU where there is one, and
// (in a binary of its own) the CUDA code over a stand-in for the CUDA runtime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "device/device.h"
#include "testing/test_devices.h"
#include "tests/device/law_kernels.h"

namespace macaw::device {

std::vector<HostKernelEntry> LawHostKernels() {
  return {HostEntry<FillArgs, Fill>(kFill), HostEntry<BlockSumArgs, BlockSum>(kBlockSum),
          HostEntry<TwoRoundingsArgs, TwoRoundings>(kTwoRoundings)};
}

namespace {

using ::testing::HasSubstr;

class DeviceLaw : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    made_ = testing_support::MakeTestDevice(GetParam(), LawHostKernels(), LawCudaKernels());
    if (made_.device == nullptr) GTEST_SKIP() << made_.skip;
    queue_ = *made_.device->MakeQueue();
  }
  void TearDown() override { queue_ = nullptr; }

  Device& device() { return *made_.device; }
  Queue& queue() { return *queue_; }
  template <typename T>
  std::vector<T> Read(const Memory& memory) {
    std::vector<T> values(memory.size() / sizeof(T));
    queue_->CopyOut(std::as_writable_bytes(std::span(values)), memory.data());
    EXPECT_TRUE(queue_->Wait().ok()) << queue_->Wait();
    return values;
  }

 private:
  testing_support::TestDevice made_;
  std::unique_ptr<Queue> queue_;
};

TEST_P(DeviceLaw, DescribesItself) {
  const DeviceInfo& info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.driver.empty());
  EXPECT_THAT(info.capability, HasSubstr("."));
  EXPECT_GE(info.processors, 1);
  EXPECT_GE(info.shared_bytes, 64 << 10);
  const absl::StatusOr<uint64_t> free = device().FreeMemory();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_LE(*free, info.memory);
}

TEST_P(DeviceLaw, CopiesInOutAndWithin) {
  std::vector<uint32_t> values(1000);
  std::iota(values.begin(), values.end(), 7);
  const Memory first = *device().Allocate(4000), second = *device().Allocate(4000);
  queue().CopyIn(first.data(), std::as_bytes(std::span(values)));
  queue().Zero(second.data(), 4000);
  queue().CopyWithin(second.data() + 400, first.data(), 400);
  const std::vector<uint32_t> out = Read<uint32_t>(second);
  for (size_t i = 0; i < 1000; ++i)
    ASSERT_EQ(out[i], i >= 100 && i < 200 ? values[i - 100] : 0) << i;
}

TEST_P(DeviceLaw, RunsKernelsInOrderForAnyNumberOfThreads) {
  const Memory memory = *device().Allocate(5001 * sizeof(uint32_t));
  for (const Launch launch : {Launch{1, 1}, Launch{3, 64}, Launch{40, 256}, Launch{2, 1024}}) {
    queue().Run(kFill, {1, 1}, {memory.As<uint32_t>(), 5001, 0});
    queue().Run(kFill, launch, {memory.As<uint32_t>(), 5001, 3});
    const std::vector<uint32_t> out = Read<uint32_t>(memory);
    for (uint32_t i = 0; i < 5001; ++i) ASSERT_EQ(out[i], 3 * i) << launch.threads;
  }
}

TEST_P(DeviceLaw, GivesABlockTheSharedMemoryThatItAsksFor) {
  constexpr uint32_t kCount = 5001;
  const Memory values = *device().Allocate(kCount * sizeof(uint32_t));
  const Memory sums = *device().Allocate(4 * sizeof(uint32_t));
  queue().Run(kFill, {4, 128}, {values.As<uint32_t>(), kCount, 1});
  // The second is more than a launch may have without asking the CUDA runtime.
  for (const uint32_t bytes : {4096u, 64u << 10}) {
    queue().Run(kBlockSum, {4, 128, bytes},
                {values.As<uint32_t>(), kCount, sums.As<uint32_t>(), bytes / 4});
    const std::vector<uint32_t> out = Read<uint32_t>(sums);
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0U), kCount * (kCount - 1) / 2);
  }
}

TEST_P(DeviceLaw, DoesNotFuseAProductAndASum) {
  // (1 + 2^-30)² − 1: the last bit of the square is lost if it is rounded before the subtraction.
  const std::vector<double> values(64, 1 + 0x1p-30);
  const Memory in = *device().Allocate(512), out = *device().Allocate(512);
  queue().CopyIn(in.data(), std::as_bytes(std::span(values)));
  queue().Run(kTwoRoundings, {1, 32}, {in.As<double>(), 64, out.As<double>()});
  for (const double value : Read<double>(out)) EXPECT_EQ(value, 0x1p-29);
}

TEST_P(DeviceLaw, HasPageLockedMemoryThatTheHostMayUse) {
  const Memory host = *device().AllocateHost(4096), memory = *device().Allocate(4096);
  std::iota(host.As<uint32_t>(), host.As<uint32_t>() + 1024, 5);
  queue().CopyIn(memory.data(), {host.data(), host.size()});
  const std::vector<uint32_t> out = Read<uint32_t>(memory);
  EXPECT_EQ(out[1023], 1028);
}

TEST_P(DeviceLaw, SaysHowMuchMemoryThereIsWhenItRunsOut) {
  const uint64_t wanted = device().info().memory + (1 << 20);
  const absl::StatusOr<Memory> refused = device().Allocate(wanted);
  ASSERT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr(absl::StrCat(wanted)));
  EXPECT_TRUE(device().Allocate(1 << 20).ok());  // that was no harm to the device
  EXPECT_TRUE(absl::IsInvalidArgument(device().Allocate(0).status()));
}

TEST_P(DeviceLaw, GivesMemoryBack) {
  const uint64_t before = *device().FreeMemory();
  {
    const Memory memory = *device().Allocate(64 << 20);
    EXPECT_LT(*device().FreeMemory(), before);
  }
  EXPECT_GE(*device().FreeMemory(), before);
}

TEST_P(DeviceLaw, KeepsTheFirstErrorOfAQueue) {
  const Memory memory = *device().Allocate(4096);
  constexpr Kernel<FillArgs> kUnknown = {"law.unknown"};
  const std::unique_ptr<Queue> other = *device().MakeQueue();
  other->Zero(memory.data(), 4096);
  other->Run(kUnknown, {1, 1}, {memory.As<uint32_t>(), 4, 1});
  other->Run(kFill, {1, 2048}, {memory.As<uint32_t>(), 4, 1});
  const absl::Status status = other->Wait();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("law.unknown"));
  EXPECT_EQ(other->Wait(), status);
  EXPECT_EQ(Read<uint32_t>(memory)[3], 0);  // other queues go on, and later work was dropped
}

TEST_P(DeviceLaw, RefusesALaunchThatNoBlockCanHave) {
  for (const Launch launch :
       {Launch{0, 1}, Launch{1, 0}, Launch{1, 1025}, Launch{1, 32, uint32_t{1} << 30}}) {
    const std::unique_ptr<Queue> other = *device().MakeQueue();
    const Memory memory = *device().Allocate(64);
    other->Run(kFill, launch, {memory.As<uint32_t>(), 4, 1});
    const absl::Status status = other->Wait();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("law.fill"));
  }
  const Memory memory = *device().Allocate(64);
  queue().Run(kFill, {1, 32}, {memory.As<uint32_t>(), 16, 1});
  EXPECT_EQ(Read<uint32_t>(memory)[3], 3);
}

INSTANTIATE_TEST_SUITE_P(OnA, DeviceLaw, ::testing::ValuesIn(testing_support::TestDeviceNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace macaw::device
