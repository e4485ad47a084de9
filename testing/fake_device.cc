#include "testing/fake_device.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw::testing_support {
namespace {

constexpr size_t kAlignment = 256;  // of an allocation
constexpr int kGarbage = 0xFF;      // a not-a-number, in floats and doubles

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

absl::Status Lost() { return absl::UnavailableError("the fake device is lost"); }

// A block's threads. The C library's barrier, because std::barrier spins, which is slow with more
// threads than cores, and because ThreadSanitizer sees it.
class RealBarrier final : public device::Barrier {
 public:
  explicit RealBarrier(uint32_t threads) { ::pthread_barrier_init(&barrier_, nullptr, threads); }
  ~RealBarrier() override { ::pthread_barrier_destroy(&barrier_); }
  RealBarrier(const RealBarrier&) = delete;
  RealBarrier& operator=(const RealBarrier&) = delete;
  void Wait() override { ::pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

}  // namespace

struct FakeDevice::Operation {
  enum class Kind : uint8_t { kCopyIn, kCopyOut, kCopyWithin, kZero, kRun };
  Kind kind = Kind::kZero;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
  std::string kernel;
  device::Launch launch;
  std::vector<std::byte> args;
};

// What a queue has not done yet, and its first error.
struct FakeDevice::Backlog {
  std::deque<Operation> operations;
  absl::Status status;
};

class FakeDevice::FakeQueue final : public device::Queue {
 public:
  explicit FakeQueue(FakeDevice* owner) : owner_(owner) {
    absl::MutexLock lock(&owner_->mutex_);
    owner_->backlogs_.push_back(&backlog_);
  }
  ~FakeQueue() override {
    owner_->Finish(backlog_).IgnoreError();
    owner_->Discard(backlog_);
  }

  void CopyIn(std::byte* to, std::span<const std::byte> from) override {
    Add({.kind = Operation::Kind::kCopyIn, .to = to, .from = from.data(), .bytes = from.size()});
  }
  void CopyOut(std::span<std::byte> to, const std::byte* from) override {
    Add({.kind = Operation::Kind::kCopyOut, .to = to.data(), .from = from, .bytes = to.size()});
  }
  void CopyWithin(std::byte* to, const std::byte* from, size_t bytes) override {
    Add({.kind = Operation::Kind::kCopyWithin, .to = to, .from = from, .bytes = bytes});
  }
  void Zero(std::byte* to, size_t bytes) override {
    Add({.kind = Operation::Kind::kZero, .to = to, .bytes = bytes});
  }
  absl::Status Wait() override {
    ++owner_->waits_;
    return owner_->Finish(backlog_);
  }

 private:
  void RunNamed(const char* kernel, const device::Launch& launch, const void* args,
                size_t bytes) override {
    const auto* first = static_cast<const std::byte*>(args);
    Operation operation;
    operation.kind = Operation::Kind::kRun;
    operation.kernel = kernel;
    operation.launch = launch;
    operation.args.assign(first, first + bytes);
    Add(std::move(operation));
  }
  void Add(Operation operation) {
    absl::MutexLock lock(&owner_->mutex_);
    backlog_.operations.push_back(std::move(operation));
  }

  FakeDevice* const owner_;
  Backlog backlog_;  // guarded by the device's mutex
};

FakeDevice::FakeDevice(std::vector<device::HostKernelEntry> kernels, FakeDeviceOptions options)
    : kernels_(std::move(kernels)),
      options_(options),
      order_({.seed = options.seed, .purpose = Purpose::kTest}) {
  info_.name = "fake";
  info_.driver = "none";
  info_.capability = "0.0";
  info_.memory = options_.memory;
  info_.processors = options_.processors;
  info_.shared_bytes = options_.shared_bytes;
}

FakeDevice::~FakeDevice() {
  absl::MutexLock lock(&mutex_);
  // Memory that outlives its device would be freed by a device that is gone.
  if (!allocations_.empty() || !backlogs_.empty()) std::abort();
}

absl::StatusOr<uint64_t> FakeDevice::FreeMemory() const {
  absl::MutexLock lock(&mutex_);
  if (operations_ >= lost_from_) return Lost();
  return options_.memory - used_;
}

absl::StatusOr<device::Memory> FakeDevice::Allocate(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  absl::MutexLock lock(&mutex_);
  if (operations_ >= lost_from_) return Lost();
  const uint64_t call = allocated_++;
  const size_t whole = RoundUp(bytes, kAlignment);
  const uint64_t free = options_.memory - used_;
  if (whole > free || (call >= fail_from_ && call < fail_until_)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the fake device has ", free, " bytes of memory free, not ", bytes));
  }
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.page_bytes = RoundUp(whole, PageBytes()) + 2 * PageBytes();
  void* const pages = ::mmap(nullptr, allocation.page_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return absl::ResourceExhaustedError("mmap failed");
  allocation.pages = static_cast<std::byte*>(pages);
  // The allocation ends where the last page begins.
  std::byte* const data = allocation.pages + allocation.page_bytes - PageBytes() - whole;
  ::mprotect(allocation.pages + PageBytes(), allocation.page_bytes - 2 * PageBytes(),
             PROT_READ | PROT_WRITE);
  std::memset(data, kGarbage, whole);
  ::mprotect(allocation.pages + PageBytes(), allocation.page_bytes - 2 * PageBytes(), PROT_NONE);
  allocations_.emplace(data, allocation);
  used_ += whole;
  most_used_ = std::max(most_used_, used_);
  return device::Memory(this, data, bytes, /*on_host=*/false);
}

absl::StatusOr<device::Memory> FakeDevice::AllocateHost(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  {
    absl::MutexLock lock(&mutex_);
    if (operations_ >= lost_from_) return Lost();
  }
  if (host_used_ + bytes > options_.host_memory)
    return absl::ResourceExhaustedError("the host has no more memory to page-lock");
  auto* const data =
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment)));
  if (data == nullptr) return absl::ResourceExhaustedError("the host is out of memory");
  std::memset(data, kGarbage, bytes);
  const uint64_t used = host_used_ += bytes;
  for (uint64_t most = most_host_used_; most < used;)
    if (most_host_used_.compare_exchange_weak(most, used)) break;
  return device::Memory(this, data, bytes, /*on_host=*/true);
}

void FakeDevice::Free(std::byte* data, size_t size, bool on_host) {
  if (on_host) {
    host_used_ -= size;
    return std::free(data);
  }
  absl::MutexLock lock(&mutex_);
  const auto it = allocations_.find(data);
  if (it == allocations_.end()) std::abort();
  ::munmap(it->second.pages, it->second.page_bytes);
  used_ -= RoundUp(it->second.bytes, kAlignment);
  allocations_.erase(it);
}

absl::StatusOr<std::unique_ptr<device::Queue>> FakeDevice::MakeQueue() {
  {
    absl::MutexLock lock(&mutex_);
    if (operations_ >= lost_from_) return Lost();
  }
  return std::make_unique<FakeQueue>(this);
}

void FakeDevice::FailAllocations(uint64_t first, uint64_t count) {
  absl::MutexLock lock(&mutex_);
  fail_from_ = allocated_ + first;
  fail_until_ = fail_from_ + count;
}

void FakeDevice::LoseAfter(uint64_t operations) {
  absl::MutexLock lock(&mutex_);
  lost_from_ = operations_ + operations;
}

uint64_t FakeDevice::used() const {
  absl::MutexLock lock(&mutex_);
  return used_;
}

uint64_t FakeDevice::copied_out() const {
  absl::MutexLock lock(&mutex_);
  return copied_out_;
}

uint64_t FakeDevice::most_used() const {
  absl::MutexLock lock(&mutex_);
  return most_used_;
}

// Does what `backlog` has, and now and then something of another one.
absl::Status FakeDevice::Finish(Backlog& backlog) {
  absl::MutexLock lock(&mutex_);
  Protect(PROT_READ | PROT_WRITE);
  while (!backlog.operations.empty()) Do(*backlogs_[order_.Below(backlogs_.size())]);
  Protect(PROT_NONE);
  if (operations_ >= lost_from_) backlog.status.Update(Lost());
  return backlog.status;
}

void FakeDevice::Discard(Backlog& backlog) {
  absl::MutexLock lock(&mutex_);
  std::erase(backlogs_, &backlog);
}

void FakeDevice::Do(Backlog& backlog) {
  if (backlog.operations.empty()) return;
  const Operation operation = std::move(backlog.operations.front());
  backlog.operations.pop_front();
  if (!backlog.status.ok()) return;
  backlog.status = operations_ >= lost_from_ ? Lost() : Carry(operation);
  if (operations_ < lost_from_) ++operations_;
}

absl::Status FakeDevice::Carry(const Operation& operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kRun) return Launch(operation);
  if (operation.bytes == 0) return absl::OkStatus();
  const bool reads = operation.kind == Kind::kCopyOut || operation.kind == Kind::kCopyWithin;
  const bool writes = operation.kind != Kind::kCopyOut;
  if ((reads && !Holds(operation.from, operation.bytes)) ||
      (writes && !Holds(operation.to, operation.bytes))) {
    return absl::InternalError(
        absl::StrCat("a copy of ", operation.bytes, " bytes leaves the device's memory"));
  }
  if (operation.kind == Kind::kZero) {
    std::memset(operation.to, 0, operation.bytes);
  } else {
    std::memmove(operation.to, operation.from, operation.bytes);
    if (operation.kind == Kind::kCopyOut) copied_out_ += operation.bytes;
  }
  return absl::OkStatus();
}

absl::Status FakeDevice::Launch(const Operation& operation) {
  const auto kernel = std::ranges::find_if(kernels_, [&](const device::HostKernelEntry& entry) {
    return operation.kernel == entry.name;
  });
  if (kernel == kernels_.end()) {
    return absl::NotFoundError(absl::StrCat("the device has no kernel \"", operation.kernel, "\""));
  }
  const device::Launch& launch = operation.launch;
  if (launch.blocks == 0 || launch.threads == 0 || launch.threads > 1024 ||
      launch.shared_bytes > options_.shared_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel \"", operation.kernel, "\" cannot be launched with ", launch.blocks, " blocks of ",
        launch.threads, " threads and ", launch.shared_bytes, " bytes of shared memory"));
  }
  ++launches_;
  const uint32_t threads = std::min(launch.threads, options_.threads);
  // A multiple of the alignment, because std::aligned_alloc wants one.
  const size_t shared_bytes = RoundUp(std::max<size_t>(launch.shared_bytes, 1), 16);
  const std::unique_ptr<std::byte, decltype(&std::free)> shared(
      static_cast<std::byte*>(std::aligned_alloc(16, shared_bytes)), &std::free);
  RealBarrier barrier(threads);
  const auto run = [&](uint32_t thread) {
    for (uint32_t block = 0; block < launch.blocks; ++block) {
      if (thread == 0) std::memset(shared.get(), kGarbage, shared_bytes);
      const device::Team team{.block = block,
                              .blocks = launch.blocks,
                              .thread = thread,
                              .threads = threads,
                              .shared = shared.get(),
                              .barrier = threads > 1 ? &barrier : nullptr};
      team.Sync();
      kernel->run(operation.args.data(), team);
      team.Sync();
    }
  };
  std::vector<std::jthread> others;
  for (uint32_t thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  return absl::OkStatus();
}

void FakeDevice::Protect(int protection) {
  for (const auto& [data, allocation] : allocations_) {
    ::mprotect(allocation.pages + PageBytes(), allocation.page_bytes - 2 * PageBytes(), protection);
  }
}

bool FakeDevice::Holds(const std::byte* address, size_t bytes) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return false;
  --it;
  return address + bytes <= it->first + it->second.bytes;
}

}  // namespace macaw::testing_support
