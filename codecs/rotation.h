#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::codecs {

// A random rotation R of each tensor of parameters. It spreads a large number over its neighbours,
// so a quantiser of few levels behind it errs by a part of ‖v‖ that does not depend on which
// numbers are large. R is linear, and drawn for all clients of a round together: Rᵀ of the mean is
// the mean of what each client has sent, rotated back.
//
// Suresh, Yu, Kumar, McMahan, "Distributed Mean Estimation with Limited Communication", ICML 2017,
// section 3; Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021.
//
// A tensor of n numbers is taken in blocks of m = min(kRotated, the largest power of two up to n)
// from its begin, and each block becomes H D b/√m. Where a rest remains, the last m numbers of the
// tensor, which have the rest and what was made of numbers before it, are one more block after the
// others. So nothing is padded, and ‖Rv‖ = ‖v‖. H is the Walsh-Hadamard matrix in its natural
// order, H_ij = (−1)^(number of ones in i AND j). D has random signs: of w = max(1, m/32) words of
// 32 bits, bit ⌊i/w⌋ of word i mod w is set where number i changes its sign. The words are drawn as
// halves of NextU64, the lower one first, for a tensor after the other: for its block of the rest,
// then for its others in turn.
//
// Buffers and gaps stay as they are. A NaN or an infinity leaves at least one.
inline constexpr uint64_t kRotated = 4096;

void Rotate(VectorView v, RandomStream random);      // v ← R v
void RotateBack(VectorView v, RandomStream random);  // v ← Rᵀ v, of an equal stream

// |(R v)_i| ≤ √MostMixed · the largest |v|: how many numbers one number of R v is made of.
uint64_t MostMixed(const ParameterLayout& layout);

// Takes "rotate" off the front of a codec's lines. False: they begin with something else. An error
// if words follow it, or no line.
absl::StatusOr<bool> TakeRotation(std::vector<std::string>& lines);

}  // namespace macaw::codecs
