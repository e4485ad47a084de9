#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

struct LinearPlan {
  Shape in;
  size_t outputs = 0;
  // 1: of the whole input as one vector; else of each position of a sequence, alike.
  size_t positions = 1;
  bool bias = true;
  bool relu = false;  // applied to the outputs in the same pass
  // Whether it adds to what Forward's `out` holds. Only without a bias.
  bool adds = false;
};

// y = x·Wᵀ + b, followed by a ReLU if the plan has one. Accepts any input layout; the output is a
// flat vector, or a sequence of as many positions.
std::unique_ptr<Block> MakeLinear(Isa isa, const LinearPlan& plan);

}  // namespace macaw::training::fused
