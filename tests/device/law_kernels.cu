#include "device/cuda/launch.cuh"
#include "tests/device/law_kernels.h"

namespace macaw::device {

std::vector<CudaKernel> LawCudaKernels() {
  return {CudaEntry<FillArgs, Fill>(kFill), CudaEntry<BlockSumArgs, BlockSum>(kBlockSum),
          CudaEntry<TwoRoundingsArgs, TwoRoundings>(kTwoRoundings)};
}

}  // namespace macaw::device
