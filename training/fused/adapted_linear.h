#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"
#include "training/fused/linear.h"

namespace macaw::training::fused {

// y = x·Wᵀ + b + scale·(x·Aᵀ)·Bᵀ, with A [rank, in] and B [outputs, rank], followed by a ReLU if
// the plan has one: a linear layer with a low-rank adapter (models::Adapter). Its tensors are W, b,
// A and B. Where the gradient of W is not wanted, it is not computed.
std::unique_ptr<Block> MakeAdaptedLinear(Isa isa, const LinearPlan& plan, size_t rank,
                                         double scale);

}  // namespace macaw::training::fused
