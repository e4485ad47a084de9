#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/cuda_kernel.h"
#include "device/device.h"

namespace macaw::device {

// NVIDIA's GPUs, through the CUDA runtime, which is linked statically: a program with this code
// starts where there is no driver, and says so. All functions are thread-safe.

// This process's GPUs; the first one is "cuda:0". The error says why there are none: no driver, one
// that is too old, no GPU.
absl::StatusOr<std::vector<DeviceInfo>> ListCudaDevices();

// `kernels`: all that its queues can run. kFailedPrecondition: the program has no code for this
// GPU. The device's memory is taken with cudaMalloc and its queues are streams that do not wait for
// the default one. A thread that waits sleeps.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, std::vector<CudaKernel> kernels);

// The stream of a queue of such a device, for libraries that take one.
void* CudaStreamOf(Queue& queue);

// Whether all work of the stream is done; does not wait. An error is that of the work.
absl::StatusOr<bool> CudaStreamIsDone(void* stream);

// Makes the device the calling thread's, for libraries that look at it.
absl::Status UseCudaDevice(int index);

// What the compiler made of a kernel for this device, for reports.
struct CudaKernelUse {
  std::string name;
  int registers = 0;     // of a thread
  size_t local = 0;      // bytes of a thread that did not fit into registers, arrays included
  size_t shared = 0;     // bytes of a block, without Launch::shared_bytes
  int most_threads = 0;  // of a block
};
absl::StatusOr<std::vector<CudaKernelUse>> CudaKernelUses(int index,
                                                          const std::vector<CudaKernel>& kernels);

}  // namespace macaw::device
