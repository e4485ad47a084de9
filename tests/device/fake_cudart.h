#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "testing/fake_device.h"

namespace macaw::device {

// The CUDA runtime of a machine that is not there: its functions, linked in place of the library,
// do their work on fake devices. So the code over the runtime is tested without a GPU: which way it
// copies, what it asks the runtime first, what it makes of errors.
struct FakeCudart {
  int driver_version = 13000;  // 0: there is no driver
  cudaError_t count_error = cudaSuccess;
  std::vector<std::unique_ptr<testing_support::FakeDevice>> gpus;
  cudaError_t lost = cudaErrorIllegalAddress;  // what a lost device answers
  int most_threads = 1024;                     // of a block
  cudaError_t code_error = cudaSuccess;        // what is wrong with the code of kernels
  int contexts = 0;  // calls that make one: it takes memory, and may shut other processes out
};
FakeCudart& TheFakeCudart();

// A machine with so many GPUs, which run the kernels of the law tests.
void MakeFakeGpus(int count, testing_support::FakeDeviceOptions options = {});

}  // namespace macaw::device
