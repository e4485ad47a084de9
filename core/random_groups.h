#pragma once

#include <cstddef>
#include <cstdint>

// The numbers of whole groups of a stream's blocks (random.h), on the best instruction set. All
// instruction sets give the same bits. `high`: the upper half of every block's counter. Private to
// core.
namespace macaw {

inline constexpr size_t kBlocksInGroup = 16;
inline constexpr size_t kPairsInGroup = 2 * kBlocksInGroup;
inline constexpr size_t kNormalsInGroup = 4 * kBlocksInGroup;

// Pairs of words as 64-bit numbers, each with two words in the order of single draws.
void FillPairs(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
               uint64_t* out);

// Normals. All operations are element-wise over the blocks of a group, and libm is not used because
// its bits differ between versions and processors. So the compiler can vectorise the loops to any
// width and the values stay the same.
void FillNormals(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
                 float* out);

}  // namespace macaw
