#pragma once

namespace macaw::training {

// How fast LibTorch multiplies matrices on the calling thread, in GFLOP/s (float32, 768 × 768, best
// of eight). A healthy BLAS gives tens; a reference BLAS gives one.
double MeasureBlas();

}  // namespace macaw::training
