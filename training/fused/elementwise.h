#pragma once

#include <memory>

#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

enum class Function { kRelu, kTanh, kSigmoid };

// One of the functions on every element of any shape.
std::unique_ptr<Block> MakeElementwise(Isa isa, Function function, const Shape& shape);

// Zeros an element with probability p and multiplies the others by 1/(1−p), by the words of the
// pass's stream as models::Network draws them; without a stream, the identity. 0 < p < 1.
std::unique_ptr<Block> MakeDropout(double p, const Shape& shape);

}  // namespace macaw::training::fused
