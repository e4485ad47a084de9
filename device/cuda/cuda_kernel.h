#pragma once

#include <cstdint>

namespace macaw::device {

// A kernel as nvcc compiled it. device/cuda/launch.cuh makes the entries; who makes a CUDA device
// hands it the list of all that it is to run.
struct CudaKernel {
  const char* name = "";        // Kernel::name
  uint32_t args_bytes = 0;      // sizeof(Args)
  const void* entry = nullptr;  // the __global__ function, as cudaLaunchKernel takes it
};

}  // namespace macaw::device
