#pragma once

#include <cstdint>

namespace macaw {

// Sixteen consecutive blocks of Philox4x32-10 (Salmon et al., SC'11), word by word: the lower half
// of w[j][i] is word j of block first + i; the upper half means nothing, so that the compiler's
// vectors multiply 32 by 32 bits without moving anything. Plain loops over elements, for functions
// marked MACAW_CLONES; always inlined, so that each of their versions has its own.
struct PhiloxGroup {
  static constexpr int kBlocks = 16;
  uint64_t w[4][kBlocks];

  // `high`: the upper half of every block's counter.
  inline __attribute__((always_inline))
  PhiloxGroup(const uint32_t* key, const uint32_t* high, uint64_t first) {
    constexpr uint64_t kLow = 0xFFFFFFFF;
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t block = first + static_cast<uint64_t>(i);
      w[0][i] = block;
      w[1][i] = block >> 32;
      w[2][i] = high[0];
      w[3][i] = high[1];
    }
    uint64_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1
      for (int i = 0; i < kBlocks; ++i) {
        const uint64_t p0 = 0xD2511F53 * (w[0][i] & kLow);
        const uint64_t p1 = 0xCD9E8D57 * (w[2][i] & kLow);
        w[0][i] = (p1 >> 32) ^ w[1][i] ^ k0;
        w[1][i] = p1;
        w[2][i] = (p0 >> 32) ^ w[3][i] ^ k1;
        w[3][i] = p0;
      }
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
  }
};

}  // namespace macaw
