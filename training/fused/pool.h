#pragma once

#include <memory>

#include "training/fused/block.h"

namespace macaw::training::fused {

// Pools that are not part of a convolution's block (conv.h). The output has the layout of the
// input. Plain loops over contiguous channels, with the same bits on every instruction set. Windows
// that would extend past the image are left out, as in PyTorch. Windows may overlap or leave gaps.
struct PoolPlan {
  Shape in;
  size_t height = 2, width = 2;  // of the window; at most the image's size
  size_t stride = 2;
};

// The first of equal maxima gets the gradient; a NaN counts as larger than any number.
std::unique_ptr<Block> MakeMaxPool(const PoolPlan& plan);
std::unique_ptr<Block> MakeAvgPool(const PoolPlan& plan);

}  // namespace macaw::training::fused
