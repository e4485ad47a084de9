#pragma once

#include <vector>

#include "device/cuda/cuda_kernel.h"

namespace macaw::training {

// What DeviceTrainerKernels (training/device/kernels.h) has, for GPUs.
std::vector<device::CudaKernel> TrainerCudaKernels();

}  // namespace macaw::training
