#pragma once

namespace macaw::training {

// How fast LibTorch multiplies matrices on the calling thread, in GFLOP/s (float32, 768 × 768, best
// of eight). A good BLAS reaches tens, a reference BLAS about one.
double MeasureBlas();

}  // namespace macaw::training
