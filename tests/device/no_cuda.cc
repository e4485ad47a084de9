// The law tests' kernels in a build without CUDA.
#include "tests/device/law_kernels.h"

namespace macaw::device {

std::vector<CudaKernel> LawCudaKernels() { return {}; }

}  // namespace macaw::device
