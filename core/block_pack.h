#pragma once

#include <cstddef>
#include <cstdint>

namespace macaw {

// Puts 8·groups codes of `width` bits, 1 to 64, side by side, lowest first: eight of them take
// `width` bytes. Higher bits of a code must be zero. Writes up to kBytesBeyond bytes behind them
// (block_kernels.h).
void PackCodes(const uint64_t* codes, size_t groups, unsigned width, std::byte* out);

}  // namespace macaw
