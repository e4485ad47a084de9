// The symbol of libmacaw_torch.so.
#include "training/torch/torch_backend.h"

MACAW_BACKEND([] { return &macaw::training::TorchBackend(); })
