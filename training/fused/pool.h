#pragma once

#include <memory>

#include "training/fused/block.h"

namespace macaw::training::fused {

// Pools that no convolution takes with it (conv.h). They keep the order of their input. Plain loops
// over contiguous channels, the same bits on every instruction set; windows that would leave the
// image are left out, as in PyTorch. Windows may overlap or leave gaps.
struct PoolPlan {
  Shape in;
  size_t height = 2, width = 2;  // of a window; at most the image's
  size_t stride = 2;
};

// The first of equal maxima has the gradient; a NaN is larger than any number.
std::unique_ptr<Block> MakeMaxPool(const PoolPlan& plan);
std::unique_ptr<Block> MakeAvgPool(const PoolPlan& plan);

}  // namespace macaw::training::fused
