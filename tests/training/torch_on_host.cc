#include "tests/training/torch_on.h"

namespace macaw::training {

BackendChoice TorchChoice() { return {.name = "torch"}; }

}  // namespace macaw::training
