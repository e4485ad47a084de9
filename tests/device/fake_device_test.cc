// What the device of the tests promises: it fails where a GPU would.
#include "testing/fake_device.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

namespace macaw::device {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::FakeDevice;
using testing_support::FakeDeviceOptions;

struct AddArgs {
  int32_t* values = nullptr;
  size_t count = 0;
  int32_t by = 0;
};
constexpr Kernel<AddArgs> kAdd = {"test.add"};
MACAW_KERNEL void Add(const AddArgs& args, const Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride()) args.values[i] += args.by;
}

// Each thread writes a number into shared memory; each thread adds all of them up.
struct MeetArgs {
  int32_t* sums = nullptr;  // one a thread
};
constexpr Kernel<MeetArgs> kMeet = {"test.meet"};
MACAW_KERNEL void Meet(const MeetArgs& args, const Team& team) {
  auto* const shared = reinterpret_cast<int32_t*>(team.shared);
  shared[team.thread] = static_cast<int32_t>(team.thread + 1);
  team.Sync();
  int32_t sum = 0;
  for (uint32_t i = 0; i < team.threads; ++i) sum += shared[i];
  args.sums[team.block * team.threads + team.thread] = sum;
}

struct PeekArgs {
  float* out = nullptr;
};
constexpr Kernel<PeekArgs> kPeek = {"test.peek"};  // what shared memory holds at first
MACAW_KERNEL void Peek(const PeekArgs& args, const Team& team) {
  args.out[team.block] = *reinterpret_cast<const float*>(team.shared);
  *reinterpret_cast<float*>(team.shared) = 1;
}

std::vector<HostKernelEntry> Kernels() {
  return {HostEntry<AddArgs, Add>(kAdd), HostEntry<MeetArgs, Meet>(kMeet),
          HostEntry<PeekArgs, Peek>(kPeek)};
}

Memory MustAllocate(Device& device, size_t bytes) {
  absl::StatusOr<Memory> memory = device.Allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return memory.ok() ? *std::move(memory) : Memory();
}

std::unique_ptr<Queue> MustQueue(Device& device) {
  absl::StatusOr<std::unique_ptr<Queue>> queue = device.MakeQueue();
  EXPECT_TRUE(queue.ok()) << queue.status();
  return queue.ok() ? *std::move(queue) : nullptr;
}

TEST(FakeDevice, DoesItsWorkInOrderAndNotBeforeWait) {
  FakeDevice device(Kernels());
  const Memory memory = MustAllocate(device, 100 * sizeof(int32_t));
  const auto queue = MustQueue(device);
  std::vector<int32_t> in(100), out(100, -1);
  queue->Zero(memory.data(), memory.size());
  queue->Run(kAdd, {.blocks = 3, .threads = 8}, {memory.As<int32_t>(), 100, 4});
  queue->CopyIn(memory.data() + 200, std::as_bytes(std::span(in).first(25)));
  queue->CopyWithin(memory.data() + 300, memory.data(), 100);
  queue->CopyOut(std::as_writable_bytes(std::span(out)), memory.data());
  std::iota(in.begin(), in.end(), 0);  // a buffer may not be changed before Wait; a test may look
  EXPECT_THAT(out, Each(-1));
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_EQ(out[0], 4);
  EXPECT_EQ(out[49], 4);
  EXPECT_EQ(out[51], 1);
  EXPECT_EQ(out[74], 24);
  EXPECT_EQ(out[75], 4);
  EXPECT_EQ(device.launches(), 1);
}

TEST(FakeDevice, RunsTeamsOfRealThreads) {
  for (const uint32_t threads : {1u, 3u, 8u}) {
    FakeDeviceOptions options;
    options.threads = threads;
    FakeDevice device(Kernels(), options);
    const Memory memory = MustAllocate(device, 2 * threads * sizeof(int32_t));
    const auto queue = MustQueue(device);
    std::vector<int32_t> out(2 * threads);
    queue->Run(kMeet, {.blocks = 2, .threads = 8, .shared_bytes = 64}, {memory.As<int32_t>()});
    queue->CopyOut(std::as_writable_bytes(std::span(out)), memory.data());
    ASSERT_TRUE(queue->Wait().ok());
    EXPECT_THAT(out, Each(static_cast<int32_t>(threads * (threads + 1) / 2)));
  }
}

TEST(FakeDevice, FillsNewMemoryWithGarbage) {
  FakeDevice device(Kernels());
  const Memory memory = MustAllocate(device, 2 * sizeof(float));
  const auto queue = MustQueue(device);
  std::vector<float> out(2);
  queue->CopyOut(std::as_writable_bytes(std::span(out)), memory.data());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  queue->Run(kPeek, {.blocks = 2, .shared_bytes = 16}, {memory.As<float>()});
  queue->CopyOut(std::as_writable_bytes(std::span(out)), memory.data());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));  // of each block
  const absl::StatusOr<Memory> host = device.AllocateHost(sizeof(float));
  ASSERT_TRUE(host.ok());
  EXPECT_TRUE(std::isnan(*host->As<float>()));
}

TEST(FakeDeviceDeathTest, HasMemoryThatTheHostCannotTouch) {
  FakeDevice device(Kernels());
  const Memory memory = MustAllocate(device, 64);
  EXPECT_DEATH(*memory.As<volatile int32_t>() = 1, "");
  const auto queue = MustQueue(device);
  queue->Zero(memory.data(), memory.size());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_DEATH(*memory.As<volatile int32_t>() = 1, "");
  const auto leave = [&] {
    queue->Run(kAdd, {}, {memory.As<int32_t>(), 65, 1});  // 256 bytes and one number more
    queue->Wait().IgnoreError();
  };
  EXPECT_DEATH(leave(), "");
}

TEST(FakeDevice, DoesTheWorkOfOtherQueuesInADrawnOrder) {
  std::vector<bool> early;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FakeDeviceOptions options;
    options.seed = seed;
    FakeDevice device(Kernels(), options);
    const Memory memory = MustAllocate(device, 16);
    const auto first = MustQueue(device), second = MustQueue(device);
    int32_t one = 0;
    std::vector<int32_t> two(1);
    first->Zero(memory.data(), 4);
    first->CopyOut(std::as_writable_bytes(std::span(&one, 1)), memory.data());
    second->Zero(memory.data() + 8, 4);
    second->Run(kAdd, {}, {memory.As<int32_t>() + 2, 1, 7});
    second->CopyOut(std::as_writable_bytes(std::span(two)), memory.data() + 8);
    ASSERT_TRUE(first->Wait().ok());
    early.push_back(two[0] == 7);
    ASSERT_TRUE(second->Wait().ok());
    EXPECT_EQ(two[0], 7);
  }
  EXPECT_THAT(early, testing::Contains(true));
  EXPECT_THAT(early, testing::Contains(false));
}

TEST(FakeDevice, RunsOutOfMemory) {
  FakeDeviceOptions options;
  options.memory = 4096;
  FakeDevice device(Kernels(), options);
  Memory memory = MustAllocate(device, 3000);
  EXPECT_EQ(*device.FreeMemory(), 1024);
  const absl::Status status = device.Allocate(1025).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("1025"));
  memory = Memory();
  EXPECT_EQ(device.used(), 0);
  EXPECT_EQ(device.most_used(), 3072);
  device.FailAllocations(1);
  EXPECT_TRUE(device.Allocate(1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(device.Allocate(1).status()));
  EXPECT_TRUE(device.Allocate(1).ok());
}

TEST(FakeDevice, IsLostForGood) {
  FakeDevice device(Kernels());
  const Memory memory = MustAllocate(device, 8);
  const auto queue = MustQueue(device), other = MustQueue(device);
  int32_t out = -1;
  device.LoseAfter(1);
  queue->Zero(memory.data(), 8);
  queue->CopyOut(std::as_writable_bytes(std::span(&out, 1)), memory.data());
  EXPECT_TRUE(absl::IsUnavailable(queue->Wait()));
  EXPECT_EQ(out, -1);
  EXPECT_TRUE(absl::IsUnavailable(queue->Wait()));
  EXPECT_TRUE(absl::IsUnavailable(other->Wait()));
  EXPECT_TRUE(absl::IsUnavailable(device.Allocate(8).status()));
  EXPECT_TRUE(absl::IsUnavailable(device.FreeMemory().status()));
  EXPECT_TRUE(absl::IsUnavailable(device.MakeQueue().status()));
}

TEST(FakeDevice, KeepsTheFirstErrorOfAQueue) {
  FakeDevice device({});
  const Memory memory = MustAllocate(device, 8);
  const auto queue = MustQueue(device), other = MustQueue(device);
  queue->Run(kAdd, {}, {memory.As<int32_t>(), 1, 1});
  queue->Zero(memory.data() + 4, 8);
  const absl::Status status = queue->Wait();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("test.add"));
  EXPECT_EQ(queue->Wait(), status);
  EXPECT_TRUE(other->Wait().ok());
  other->Zero(memory.data() + 4, 8);
  EXPECT_TRUE(absl::IsInternal(other->Wait()));
}

}  // namespace
}  // namespace macaw::device
