#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

enum class Function { kRelu, kTanh, kSigmoid };

// One of the functions, applied to every element of any shape.
std::unique_ptr<Block> MakeElementwise(Isa isa, Function function, const Shape& shape);

// Zeroes an element with probability p and multiplies the others by 1/(1−p). Draws one word per
// element from the pass's stream, as models::Network does; without a stream it is the identity. 0 <
// p < 1.
std::unique_ptr<Block> MakeDropout(double p, const Shape& shape);

// factor·x for every element of any shape.
std::unique_ptr<Block> MakeScale(double factor, const Shape& shape);

// The elements in planar order, one after another, as a flat vector.
std::unique_ptr<Block> MakeFlatten(const Shape& shape);

}  // namespace macaw::training::fused
