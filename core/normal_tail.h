#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "core/random.h"

namespace macaw {

// The two standard normals of two words of a stream (Box-Muller): the radius from all 64 bits of
// the first, the angle from the second. In double precision, the same bits on every processor.
std::pair<double, double> NormalsOf(uint64_t radius_word, uint64_t angle_word);

// Standard normals with their tail, NormalsOf of one pair of words after the other.
// RandomStream::FillNormal draws the radius from 32 bits, so its values end at 6.66, and one beyond
// would have had the probability 3e-11. These end at 9.49, beyond which lie 2e-21. For noise whose
// tail counts (differential privacy); some three times as slow.
void FillNormalWithTail(RandomStream& stream, std::span<double> out);

}  // namespace macaw
