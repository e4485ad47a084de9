#include "device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/files.h"
#include "core/status.h"
#include "device/cuda/cuda_error.h"

namespace macaw::device {
namespace {

constexpr uint32_t kSharedWithoutAsking = 48 << 10;  // more needs cudaFuncSetAttribute

// "13.0" of 13000.
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Why there is no device, in the user's words.
absl::Status CheckDriver() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return absl::FailedPreconditionError(
        "no NVIDIA driver: libcuda.so.1 is not here (in a container, start it with its GPUs)");
  }
  int runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  switch (const cudaError_t code = cudaGetDeviceCount(&count)) {
    case cudaSuccess:
      break;
    case cudaErrorNoDevice:
      count = 0;
      break;
    case cudaErrorInsufficientDriver:
      return absl::FailedPreconditionError(
          absl::StrCat("the NVIDIA driver is too old: it knows CUDA ", VersionText(driver),
                       ", this program needs ", VersionText(runtime)));
    default:
      return CudaError(code, "looking for GPUs");
  }
  if (count == 0) {
    return absl::FailedPreconditionError(
        "no GPU: there is an NVIDIA driver, but it shows none (CUDA_VISIBLE_DEVICES hides those that "
        "it does not name)");
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceInfo> InfoOf(int index) {
  cudaDeviceProp properties{};
  MACAW_RETURN_IF_ERROR(CudaError(cudaGetDeviceProperties(&properties, index),
                                  absl::StrCat("cuda:", index, ", its properties")));
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::string release(
      absl::StripAsciiWhitespace(ReadFile("/sys/module/nvidia/version").value_or("")));
  DeviceInfo info;
  info.name = properties.name;
  info.driver = absl::StrCat("driver ", release, release.empty() ? "" : " ", "(CUDA ",
                             VersionText(driver), "), runtime ", VersionText(runtime));
  info.capability = absl::StrCat(properties.major, ".", properties.minor);
  info.memory = properties.totalGlobalMem;
  info.processors = static_cast<uint32_t>(properties.multiProcessorCount);
  info.shared_bytes = static_cast<uint32_t>(
      std::max(properties.sharedMemPerBlock, properties.sharedMemPerBlockOptin));
  return info;
}

// Whether the program has code for the GPU, or some that the driver can compile for it. Else the
// first launch would say so.
absl::Status CheckCode(int index, const DeviceInfo& info, const CudaKernel& kernel) {
  MACAW_RETURN_IF_ERROR(UseCudaDevice(index));
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel.entry);
  if (code == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // the runtime keeps it for whoever asks next
  switch (code) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
      return absl::FailedPreconditionError(
          absl::StrCat("cuda:", index, " (", info.name, ", capability ", info.capability,
                       ") cannot run this build, which has code for " MACAW_CUDA_CODE " (",
                       cudaGetErrorName(code),
                       "): choose another GPU with workers.devices, or build for it with "
                       "cmake -DMACAW_CUDA_ARCHITECTURES=",
                       absl::StrReplaceAll(info.capability, {{".", ""}})));
    default:
      return CudaError(code, absl::StrCat("cuda:", index, " (", info.name, "), its kernel \"",
                                          kernel.name, "\""));
  }
}

class CudaDevice;

class CudaQueue final : public Queue {
 public:
  CudaQueue(CudaDevice& device, cudaStream_t stream) : device_(device), stream_(stream) {}
  ~CudaQueue() override;

  void CopyIn(std::byte* to, std::span<const std::byte> from) override {
    Copy(to, from.data(), from.size(), cudaMemcpyHostToDevice, "a copy to the device");
  }
  void CopyOut(std::span<std::byte> to, const std::byte* from) override {
    Copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost, "a copy from the device");
  }
  void CopyWithin(std::byte* to, const std::byte* from, size_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToDevice, "a copy within the device");
  }
  void Zero(std::byte* to, size_t bytes) override;
  absl::Status Wait() override;

  cudaStream_t stream() const { return stream_; }

 protected:
  void RunNamed(const char* kernel, const Launch& launch, const void* args, size_t bytes) override;

 private:
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, absl::string_view what);
  // Whether work can still be enqueued; makes the device this thread's.
  bool Ready();
  void Note(cudaError_t code, absl::string_view what);

  CudaDevice& device_;
  const cudaStream_t stream_;
  absl::Status error_;  // the first one
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, DeviceInfo info, std::vector<CudaKernel> kernels)
      : index_(index),
        name_(absl::StrCat("cuda:", index, " (", info.name, ")")),
        info_(std::move(info)) {
    for (const CudaKernel& kernel : kernels) kernels_.emplace(kernel.name, kernel);
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<uint64_t> FreeMemory() const override {
    size_t free = 0, total = 0;
    MACAW_RETURN_IF_ERROR(Use());
    MACAW_RETURN_IF_ERROR(
        CudaError(cudaMemGetInfo(&free, &total), absl::StrCat(name_, ", free memory")));
    return free;
  }

  absl::StatusOr<Memory> Allocate(size_t bytes) override {
    if (bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
    MACAW_RETURN_IF_ERROR(Use());
    void* data = nullptr;
    if (const cudaError_t code = cudaMalloc(&data, bytes); code != cudaSuccess) {
      cudaGetLastError();  // the runtime keeps it for whoever asks next
      if (code != cudaErrorMemoryAllocation)
        return CudaError(code, absl::StrCat(name_, ", allocating ", bytes, " bytes"));
      const absl::StatusOr<uint64_t> free = FreeMemory();
      return absl::ResourceExhaustedError(absl::StrCat(name_, " has no ", bytes,
                                                       " bytes left: ", free.value_or(0), " of ",
                                                       info_.memory, " are free"));
    }
    return Memory(this, static_cast<std::byte*>(data), bytes, false);
  }

  absl::StatusOr<Memory> AllocateHost(size_t bytes) override {
    if (bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
    MACAW_RETURN_IF_ERROR(Use());
    void* data = nullptr;
    if (const cudaError_t code = cudaMallocHost(&data, bytes); code != cudaSuccess) {
      cudaGetLastError();
      return CudaError(code, absl::StrCat(name_, ", page-locking ", bytes, " bytes of the host"));
    }
    return Memory(this, static_cast<std::byte*>(data), bytes, true);
  }

  absl::StatusOr<std::unique_ptr<Queue>> MakeQueue() override {
    MACAW_RETURN_IF_ERROR(Use());
    cudaStream_t stream = nullptr;
    MACAW_RETURN_IF_ERROR(CudaError(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    absl::StrCat(name_, ", making a stream")));
    return std::make_unique<CudaQueue>(*this, stream);
  }

  const std::string& name() const { return name_; }
  // Makes it the calling thread's device.
  absl::Status Use() const {
    return CudaError(cudaSetDevice(index_), absl::StrCat(name_, ", choosing it"));
  }

  // The kernel, prepared for so much shared memory of a block.
  absl::StatusOr<const CudaKernel*> Prepare(const char* name, uint32_t shared_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto it = kernels_.find(name);
    if (it == kernels_.end()) {
      return absl::NotFoundError(absl::StrCat(name_, " has no kernel \"", name, "\""));
    }
    if (shared_bytes <= kSharedWithoutAsking) return &it->second;
    const absl::MutexLock lock(&mutex_);
    uint32_t& granted = shared_[it->second.entry];
    if (granted < shared_bytes) {
      const cudaError_t code =
          cudaFuncSetAttribute(it->second.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes));
      if (code != cudaSuccess) {
        cudaGetLastError();  // the runtime keeps it for whoever asks next
        return CudaError(code, absl::StrCat(name_, ", kernel \"", name, "\" with ", shared_bytes,
                                            " bytes of shared memory for a block"));
      }
      granted = shared_bytes;
    }
    return &it->second;
  }

 private:
  void Free(std::byte* data, size_t, bool on_host) override {
    // A device that is lost has lost its memory, too, so errors say nothing new.
    if (cudaSetDevice(index_) == cudaSuccess)
      static_cast<void>(on_host ? cudaFreeHost(data) : cudaFree(data));
  }

  const int index_;
  const std::string name_;
  const DeviceInfo info_;
  absl::flat_hash_map<absl::string_view, CudaKernel> kernels_;  // constant after construction
  absl::Mutex mutex_;
  absl::flat_hash_map<const void*, uint32_t> shared_ ABSL_GUARDED_BY(mutex_);  // as granted
};

CudaQueue::~CudaQueue() {
  Wait().IgnoreError();
  cudaStreamDestroy(stream_);
}

bool CudaQueue::Ready() {
  if (error_.ok()) error_ = device_.Use();
  return error_.ok();
}

void CudaQueue::Note(cudaError_t code, absl::string_view what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // the runtime keeps it for whoever asks next
  if (error_.ok()) error_ = CudaError(code, absl::StrCat(device_.name(), ", ", what));
}

void CudaQueue::Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                     absl::string_view what) {
  if (bytes == 0 || !Ready()) return;
  Note(cudaMemcpyAsync(to, from, bytes, kind, stream_), what);
}

void CudaQueue::Zero(std::byte* to, size_t bytes) {
  if (bytes == 0 || !Ready()) return;
  Note(cudaMemsetAsync(to, 0, bytes, stream_), "clearing memory");
}

void CudaQueue::RunNamed(const char* name, const Launch& launch, const void* args, size_t bytes) {
  if (!Ready()) return;
  const absl::StatusOr<const CudaKernel*> kernel = device_.Prepare(name, launch.shared_bytes);
  if (!kernel.ok()) {
    error_ = kernel.status();
    return;
  }
  const auto text = [&] {
    return absl::StrCat("kernel \"", name, "\" with ", launch.blocks, " blocks of ", launch.threads,
                        " threads and ", launch.shared_bytes, " bytes of shared memory");
  };
  if ((*kernel)->args_bytes != bytes) {
    error_ = absl::InternalError(absl::StrCat(device_.name(), ", ", text(), ": it takes ",
                                              (*kernel)->args_bytes, " bytes of arguments, not ",
                                              bytes, ": build the module again"));
    return;
  }
  void* parameters[] = {const_cast<void*>(args)};  // copied by the launch
  const cudaError_t code =
      cudaLaunchKernel((*kernel)->entry, dim3(launch.blocks), dim3(launch.threads), parameters,
                       launch.shared_bytes, stream_);
  if (code == cudaErrorInvalidConfiguration || code == cudaErrorInvalidValue ||
      code == cudaErrorLaunchOutOfResources) {
    cudaGetLastError();
    error_ = absl::InvalidArgumentError(
        absl::StrCat(device_.name(), ", ", text(), ": ", cudaGetErrorString(code)));
    return;
  }
  if (code != cudaSuccess) Note(code, text());
}

absl::Status CudaQueue::Wait() {
  // Also after an error: what was enqueued before it still uses the caller's memory.
  if (const absl::Status status = device_.Use(); !status.ok()) {
    error_.Update(status);
    return error_;
  }
  Note(cudaStreamSynchronize(stream_), "work that was enqueued earlier");
  return error_;
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListCudaDevices() {
  MACAW_RETURN_IF_ERROR(CheckDriver());
  int count = 0;
  MACAW_RETURN_IF_ERROR(CudaError(cudaGetDeviceCount(&count), "counting GPUs"));
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    MACAW_ASSIGN_OR_RETURN(DeviceInfo info, InfoOf(index));
    devices.push_back(std::move(info));
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, std::vector<CudaKernel> kernels) {
  MACAW_RETURN_IF_ERROR(CheckDriver());
  int count = 0;
  MACAW_RETURN_IF_ERROR(CudaError(cudaGetDeviceCount(&count), "counting GPUs"));
  if (index < 0 || index >= count) {
    return absl::NotFoundError(absl::StrCat("there is no GPU cuda:", index, "; this machine has ",
                                            count, ", cuda:0 … cuda:", count - 1));
  }
  // Flags are for a device that nobody in this process has used yet; an error would come again at
  // the next call.
  if (cudaInitDevice(index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid) !=
      cudaSuccess)
    cudaGetLastError();
  MACAW_ASSIGN_OR_RETURN(DeviceInfo info, InfoOf(index));
  for (const CudaKernel& kernel : kernels) MACAW_RETURN_IF_ERROR(CheckCode(index, info, kernel));
  return std::make_unique<CudaDevice>(index, std::move(info), std::move(kernels));
}

void* CudaStreamOf(Queue& queue) { return static_cast<CudaQueue&>(queue).stream(); }

absl::StatusOr<bool> CudaStreamIsDone(void* stream) {
  const cudaError_t code = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (code == cudaSuccess) return true;
  cudaGetLastError();
  if (code == cudaErrorNotReady) return false;
  return CudaError(code, "work of a stream");
}

absl::Status UseCudaDevice(int index) {
  return CudaError(cudaSetDevice(index), absl::StrCat("cuda:", index, ", choosing it"));
}

absl::StatusOr<std::vector<CudaKernelUse>> CudaKernelUses(int index,
                                                          const std::vector<CudaKernel>& kernels) {
  MACAW_RETURN_IF_ERROR(UseCudaDevice(index));
  std::vector<CudaKernelUse> uses;
  for (const CudaKernel& kernel : kernels) {
    cudaFuncAttributes attributes{};
    MACAW_RETURN_IF_ERROR(CudaError(cudaFuncGetAttributes(&attributes, kernel.entry),
                                    absl::StrCat("cuda:", index, ", kernel ", kernel.name)));
    uses.push_back({kernel.name, attributes.numRegs, attributes.localSizeBytes,
                    attributes.sharedSizeBytes, attributes.maxThreadsPerBlock});
  }
  return uses;
}

}  // namespace macaw::device
