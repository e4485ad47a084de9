// The symbol of libmacaw_cuda.so.
#include "training/cuda/cuda_backend.h"

MACAW_BACKEND([] { return &macaw::training::CudaBackend(); })
