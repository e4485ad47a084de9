#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

// A square convolution and what follows it in the same pass.
struct ConvPlan {
  Shape in;
  size_t outputs = 0;  // channels
  size_t kernel = 1, stride = 1, padding = 0;
  bool bias = true;
  bool relu = false;
  size_t pool = 1;  // then a max pool of this window and stride (at most kMaxFusedPool); 1: none
};

constexpr size_t kMaxFusedPool = 8;

// y = pool(relu(conv(x) + b)). Takes any input shape, puts out interleaved channels without
// padding, so that what a row of the next window reads is one contiguous run. Requires a kernel
// that fits the padded input and a pool that fits the convolution's output.
//
// With a pool, one gradient in pool² is not zero, and Backward touches no other: it makes that
// fraction of a tensor library's multiply-adds.
std::unique_ptr<Block> MakeConv(Isa isa, const ConvPlan& plan);

}  // namespace macaw::training::fused
