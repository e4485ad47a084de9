#pragma once

#include "training/api/backend.h"

namespace macaw::training {

// "torch": any model and any hook, by LibTorch's eager operations with one intra-op thread
// (eager_trainer.h). The module libmacaw_torch.so holds it.
const Backend& TorchBackend();

}  // namespace macaw::training
