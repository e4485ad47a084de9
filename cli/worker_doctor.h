#pragma once

namespace macaw::cli {

// `macaw-worker --doctor`: LibTorch's version, the instruction set of its kernels, and how fast a
// matrix product is on one thread. Prints lines for `macaw doctor`.
void PrintTorchDoctor();

}  // namespace macaw::cli
