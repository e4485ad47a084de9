#pragma once

#include <vector>

#include "device/cuda/cuda_kernel.h"

namespace macaw::aggregation {

// What SumHostKernels (aggregation/device_sum.h) has, for GPUs.
std::vector<device::CudaKernel> SumCudaKernels();

}  // namespace macaw::aggregation
