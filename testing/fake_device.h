#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/random.h"
#include "device/device.h"
#include "device/kernel.h"

namespace macaw::testing_support {

struct FakeDeviceOptions {
  uint64_t memory = uint64_t{256} << 20;                        // bytes that can be allocated
  uint64_t host_memory = std::numeric_limits<uint64_t>::max();  // that can be page-locked
  uint32_t processors = 2;
  uint32_t shared_bytes = 200 << 10;  // the most that a block can have
  // A team has as many threads as its launch asks for, but at most so many. They are real ones, so
  // ThreadSanitizer sees a missing Sync.
  uint32_t threads = 1;
  uint64_t seed = 0;  // of the order in which the work of several queues is done
};

// A device in this process. It finds what would otherwise fail on a GPU alone:
//  - Its memory cannot be touched but by its own operations: host code that follows an address
//    faults, and so does a kernel that leaves an allocation by more than 255 bytes.
//  - Queues are late: nothing is done before Wait. The Wait of one queue does work of other queues,
//    too, in an order drawn from the seed.
//  - New memory, a block's shared memory included, holds garbage (not-a-numbers).
//  - Memory runs out, and the device is lost, when a test says so.
// It does not promise: speed, blocks at the same time, or that page-locked memory is required where
// CUDA wants it. Thread-safe. Must outlive its queues and memory.
class FakeDevice final : public device::Device {
 public:
  explicit FakeDevice(std::vector<device::HostKernelEntry> kernels, FakeDeviceOptions options = {});
  ~FakeDevice() override;

  const device::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<uint64_t> FreeMemory() const override;
  absl::StatusOr<device::Memory> Allocate(size_t bytes) override;
  absl::StatusOr<device::Memory> AllocateHost(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<device::Queue>> MakeQueue() override;

  // `count` allocations fail, after `first` more that succeed. AllocateHost does not count.
  void FailAllocations(uint64_t first, uint64_t count = 1);
  // The device is lost after so many further operations (copies, kernels): what comes later, on any
  // queue, is not done, and everything answers kUnavailable.
  void LoseAfter(uint64_t operations);

  uint64_t used() const;                             // bytes that are allocated now
  uint64_t most_used() const;                        // bytes that were allocated at the same time
  uint64_t launches() const { return launches_; }    // kernels that were run
  uint64_t copied_out() const;                       // bytes
  uint64_t waits() const { return waits_; }          // calls of Queue::Wait
  uint64_t host_used() const { return host_used_; }  // page-locked bytes now
  uint64_t most_host_used() const { return most_host_used_; }  // at the same time

 private:
  class FakeQueue;
  struct Operation;
  struct Backlog;
  struct Allocation {
    std::byte* pages = nullptr;  // the first of them is never accessible, nor is the last
    size_t page_bytes = 0;
    size_t bytes = 0;
  };

  void Free(std::byte* data, size_t size, bool on_host) override;
  absl::Status Finish(Backlog& backlog);
  void Discard(Backlog& backlog);
  void Do(Backlog& backlog) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Carry(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Launch(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Protect(int protection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds(const std::byte* address, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  const std::vector<device::HostKernelEntry> kernels_;
  const FakeDeviceOptions options_;
  device::DeviceInfo info_;
  std::atomic<uint64_t> launches_ = 0, waits_ = 0, host_used_ = 0, most_host_used_ = 0;

  mutable absl::Mutex mutex_;
  std::map<const std::byte*, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);  // by their data
  std::vector<Backlog*> backlogs_ ABSL_GUARDED_BY(mutex_);                      // of all queues
  RandomStream order_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t most_used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;  // calls
  uint64_t fail_from_ ABSL_GUARDED_BY(mutex_) = kNever;
  uint64_t fail_until_ ABSL_GUARDED_BY(mutex_) = kNever;
  uint64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t copied_out_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lost_from_ ABSL_GUARDED_BY(mutex_) = kNever;
};

}  // namespace macaw::testing_support
