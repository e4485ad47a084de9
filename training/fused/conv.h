#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

// A square convolution with what follows it in the same pass.
struct ConvPlan {
  Shape in;
  size_t outputs = 0;  // channels
  size_t kernel = 1, stride = 1, padding = 0;
  bool bias = true;
  bool relu = false;
  size_t pool = 1;  // a max pool of this window and stride follows (at most kMaxFusedPool); 1: none
};

constexpr size_t kMaxFusedPool = 8;

// y = pool(relu(conv(x) + b)). Accepts any input layout. The output is interleaved without padding,
// so that the next convolution reads each row of a window as one contiguous run. Requires a kernel
// that fits the padded input and a pool that fits the convolution's output.
//
// With a pool, only one gradient in pool² is not zero, and Backward computes only with those: that
// fraction of a tensor library's multiply-adds.
std::unique_ptr<Block> MakeConv(Isa isa, const ConvPlan& plan);

}  // namespace macaw::training::fused
