#pragma once

#include <cstddef>

#include "training/fused/conv.h"

namespace macaw::bench {

// Seconds of LibTorch's eager forward and backward pass of the same convolution, ReLU and pool on
// one thread: best of many. `data`: with the gradient by the input.
double TimeEager(const training::fused::ConvPlan& plan, size_t batch, bool data);

}  // namespace macaw::bench
