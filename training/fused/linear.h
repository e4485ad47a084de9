#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

struct LinearPlan {
  Shape in;
  size_t outputs = 0;
  bool bias = true;
  bool relu = false;  // of the outputs, in the same pass
};

// y = x·Wᵀ + b, with a ReLU behind it where the plan has one. Takes any input shape; puts out a
// flat vector.
std::unique_ptr<Block> MakeLinear(Isa isa, const LinearPlan& plan);

}  // namespace macaw::training::fused
