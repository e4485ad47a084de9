#pragma once

#include <cstdint>

#include "device/kernel.h"

namespace macaw::device {

// Word `index` of the random stream with this key and upper half of the counter
// (RandomStream::name): the number that draw `index` of NextU32 gives. Philox4x32-10 (Salmon et
// al., SC'11).
MACAW_KERNEL uint32_t PhiloxWord(const uint32_t* key, const uint32_t* high, uint64_t index) {
  const uint64_t block = index >> 2;
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = high[0], c3 = high[1], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const uint32_t word = static_cast<uint32_t>(index & 3);
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}

}  // namespace macaw::device
