#include "tests/device/fake_cudart.h"

#include <cstring>
#include <map>
#include <mutex>
#include <span>

#include "device/cuda/cuda_kernel.h"
#include "tests/device/law_kernels.h"

namespace macaw::device {
namespace {

using testing_support::FakeDevice;

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

std::mutex mutex;  // guards what follows
std::map<const void*, Memory> allocations;
std::map<const void*, int> most_shared;  // of an entry, as cudaFuncSetAttribute granted

FakeDevice* Gpu() {
  FakeCudart& runtime = TheFakeCudart();
  if (runtime.gpus.empty()) MakeFakeGpus(2);
  return runtime.gpus[static_cast<size_t>(current)].get();
}

// A queue knows its device no more, so the runtime notes where a stream belongs.
struct Stream {
  int gpu;
  std::unique_ptr<Queue> queue;
};

Stream& Of(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }

cudaError_t Answer(const absl::Status& status) {
  if (status.ok()) return cudaSuccess;
  last = absl::IsUnavailable(status)         ? TheFakeCudart().lost
         : absl::IsResourceExhausted(status) ? cudaErrorMemoryAllocation
                                             : cudaErrorInvalidValue;
  return last;
}

cudaError_t Fail(cudaError_t code) { return last = code; }

cudaError_t Keep(absl::StatusOr<Memory> memory, void** data) {
  if (!memory.ok()) return Answer(memory.status());
  *data = memory->data();
  const std::lock_guard lock(mutex);
  allocations.emplace(*data, *std::move(memory));
  return cudaSuccess;
}

cudaError_t Drop(const void* data) {
  const std::lock_guard lock(mutex);
  return allocations.erase(data) == 1 ? cudaSuccess : Fail(cudaErrorInvalidValue);
}

}  // namespace

FakeCudart& TheFakeCudart() {
  static FakeCudart runtime;
  return runtime;
}

void MakeFakeGpus(int count, testing_support::FakeDeviceOptions options) {
  FakeCudart& runtime = TheFakeCudart();
  runtime = {};
  while (count-- > 0)
    runtime.gpus.push_back(std::make_unique<FakeDevice>(LawHostKernels(), options));
}

// A fake entry is the kernel's name.
std::vector<CudaKernel> LawCudaKernels() {
  return {{kFill.name, sizeof(FillArgs), kFill.name},
          {kBlockSum.name, sizeof(BlockSumArgs), kBlockSum.name},
          {kTwoRoundings.name, sizeof(TwoRoundingsArgs), kTwoRoundings.name}};
}

}  // namespace macaw::device

using namespace macaw;          // NOLINT: the functions below are C's
using namespace macaw::device;  // NOLINT

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = TheFakeCudart().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (TheFakeCudart().count_error != cudaSuccess) return Fail(TheFakeCudart().count_error);
  Gpu();
  *count = static_cast<int>(TheFakeCudart().gpus.size());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  const DeviceInfo& info = TheFakeCudart().gpus[static_cast<size_t>(device)]->info();
  std::strcpy(properties->name, "Stand-in");
  properties->major = 9;
  properties->totalGlobalMem = info.memory;
  properties->multiProcessorCount = static_cast<int>(info.processors);
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = info.shared_bytes;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorStandIn"; }
cudaError_t cudaGetLastError() {
  const cudaError_t code = last;
  last = cudaSuccess;
  return code;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || static_cast<size_t>(device) >= TheFakeCudart().gpus.size())
    return Fail(cudaErrorInvalidDevice);
  current = device;
  ++TheFakeCudart().contexts;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) {
  ++TheFakeCudart().contexts;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const absl::StatusOr<uint64_t> bytes = Gpu()->FreeMemory();
  if (!bytes.ok()) return Answer(bytes.status());
  *free = *bytes;
  *total = Gpu()->info().memory;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) { return Keep(Gpu()->Allocate(bytes), data); }
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return Keep(Gpu()->AllocateHost(bytes), data);
}
cudaError_t cudaFree(void* data) { return Drop(data); }
cudaError_t cudaFreeHost(void* data) { return Drop(data); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return Fail(cudaErrorInvalidValue);
  absl::StatusOr<std::unique_ptr<Queue>> queue = Gpu()->MakeQueue();
  if (!queue.ok()) return Answer(queue.status());
  *stream = reinterpret_cast<cudaStream_t>(new Stream{current, *std::move(queue)});
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &Of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Answer(Of(stream).queue->Wait()); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return Answer(Of(stream).queue->Wait()); }

// The calling thread must have chosen the stream's device.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (Of(stream).gpu != current) return Fail(cudaErrorInvalidResourceHandle);
  Queue& queue = *Of(stream).queue;
  auto* const t = static_cast<std::byte*>(to);
  const auto* const f = static_cast<const std::byte*>(from);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      queue.CopyIn(t, {f, bytes});
      return cudaSuccess;
    case cudaMemcpyDeviceToHost:
      queue.CopyOut({t, bytes}, f);
      return cudaSuccess;
    case cudaMemcpyDeviceToDevice:
      queue.CopyWithin(t, f, bytes);
      return cudaSuccess;
    default:
      return Fail(cudaErrorInvalidMemcpyDirection);
  }
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (Of(stream).gpu != current || value != 0) return Fail(cudaErrorInvalidValue);
  Of(stream).queue->Zero(static_cast<std::byte*>(to), bytes);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
      static_cast<uint32_t>(value) > Gpu()->info().shared_bytes)
    return Fail(cudaErrorInvalidValue);
  const std::lock_guard lock(mutex);
  most_shared[entry] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  if (TheFakeCudart().code_error != cudaSuccess) return Fail(TheFakeCudart().code_error);
  attributes->maxThreadsPerBlock = TheFakeCudart().most_threads;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* entry, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t stream) {
  if (Of(stream).gpu != current) return Fail(cudaErrorInvalidResourceHandle);
  if (grid.x == 0 || block.x == 0 || block.x > static_cast<unsigned>(TheFakeCudart().most_threads))
    return Fail(cudaErrorInvalidConfiguration);
  {
    const std::lock_guard lock(mutex);
    const auto it = most_shared.find(entry);
    const size_t granted = it == most_shared.end() ? 48 << 10 : static_cast<size_t>(it->second);
    if (shared > granted) return Fail(cudaErrorInvalidValue);
  }
  const auto* const name = static_cast<const char*>(entry);
  const Launch launch{grid.x, block.x, static_cast<uint32_t>(shared)};
  Queue& queue = *Of(stream).queue;
  if (name == std::string(kFill.name)) {
    queue.Run(kFill, launch, *static_cast<const FillArgs*>(args[0]));
  } else if (name == std::string(kBlockSum.name)) {
    queue.Run(kBlockSum, launch, *static_cast<const BlockSumArgs*>(args[0]));
  } else {
    queue.Run(kTwoRoundings, launch, *static_cast<const TwoRoundingsArgs*>(args[0]));
  }
  return cudaSuccess;
}

}  // extern "C"
