#include "aggregation/cuda/sum_kernels.h"
#include "aggregation/device_sum-inl.h"
#include "device/cuda/launch.cuh"

namespace macaw::aggregation {

std::vector<device::CudaKernel> SumCudaKernels() {
  return {device::CudaEntry<MeasureArgs, MeasureVectors>(kMeasureVectors),
          device::CudaEntry<JudgeArgs, JudgeClients>(kJudgeClients),
          device::CudaEntry<FoldArgs, FoldVectors>(kFoldVectors),
          device::CudaEntry<FoldArgs, FoldKeys>(kFoldKeys),
          device::CudaEntry<FillIntegersArgs, FillIntegers>(kFillIntegers),
          device::CudaEntry<MergeArgs, MergeIntegers>(kMergeIntegers)};
}

}  // namespace macaw::aggregation
