#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/kernel.h"

namespace macaw::device {

// A processor with memory of its own, and the ordered queues of work through which it is used. The
// trainer and the sums are written against this interface. device/cuda implements it over the CUDA
// runtime, testing/fake_device.h in the memory of this process, where host code that touches a
// device's bytes faults and queues run late.

struct DeviceInfo {
  std::string name;             // "NVIDIA H200"
  std::string driver;           // versions, for reports and the numeric profile
  std::string capability;       // "9.0"
  uint64_t memory = 0;          // bytes
  uint32_t processors = 1;      // blocks that can run at the same time, one each
  uint32_t shared_bytes = 0;    // the most that a block can have
  uint32_t best_threads = 256;  // of a block, for kernels that take any number
};

class Device;

// Bytes that belong to a device, or page-locked bytes of the host. Movable; freed at the end, which
// must come after the work that uses them (Queue::Wait). 256-byte aligned.
class Memory {
 public:
  Memory() = default;
  Memory(Device* device, std::byte* data, size_t size, bool on_host)
      : device_(device), data_(data), size_(size), on_host_(on_host) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  // An address on the device: for kernels and copies. The host must not follow it, unless this is
  // page-locked memory.
  std::byte* data() const { return data_; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool on_host_ = false;
};

// Work for a device, done in order, some time after the call. One thread at a time. Whatever a call
// names must stay as it is until Wait. A failure is kept: later work is dropped, and Wait returns
// the first error. kUnavailable: the device itself is lost; this process cannot use it any more.
class Queue {
 public:
  virtual ~Queue() = default;  // waits

  virtual void CopyIn(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void CopyOut(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void CopyWithin(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void Zero(std::byte* to, size_t bytes) = 0;
  // `args` is copied before the call returns.
  template <typename Args>
  void Run(const Kernel<Args>& kernel, const Launch& launch, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);
    RunNamed(kernel.name, launch, &args, sizeof(Args));
  }
  // Blocks until all work so far is done.
  virtual absl::Status Wait() = 0;

 protected:
  virtual void RunNamed(const char* kernel, const Launch& launch, const void* args,
                        size_t bytes) = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual absl::StatusOr<uint64_t> FreeMemory() const = 0;  // bytes, now
  // kResourceExhausted, with both numbers, if there is not so much. Undefined contents.
  virtual absl::StatusOr<Memory> Allocate(size_t bytes) = 0;
  // Page-locked memory of the host, from which copies are fast and do not block.
  virtual absl::StatusOr<Memory> AllocateHost(size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Queue>> MakeQueue() = 0;

 private:
  friend class Memory;
  virtual void Free(std::byte* data, size_t size, bool on_host) = 0;
};

// Makes `memory` at least so large; where it grows, what it held is lost, so nothing may use it.
// Errors are the device's.
absl::Status Grow(Device& device, size_t bytes, bool on_host, Memory& memory);

}  // namespace macaw::device
