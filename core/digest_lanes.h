#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/digest.h"
#include "core/isa.h"

namespace macaw {

// How many texts of one length are hashed at once on this instruction set: one in each 64-bit lane
// of a vector (8 with avx512, 4 with avx2, 2 with sse4 and neon). 1 without vectors.
size_t DigestLanes(Isa isa);

// DigestOf each of the texts, which begin at `texts` and have `length` bytes each. `isa` is one of
// SupportedIsas(); the results are the same on all of them. Any number of texts; whole groups of
// DigestLanes are the fastest.
std::vector<Digest> DigestsOfEqualLength(Isa isa, std::span<const std::byte* const> texts,
                                         size_t length);

}  // namespace macaw
