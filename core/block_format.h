#pragma once

#include <cstdint>

// What the writer and the reader of blocks share (blocks.h), and no one else.
namespace macaw::block_format {

inline constexpr unsigned kPlaceBits = 9;      // 2^9 = kBlock
inline constexpr unsigned kMostLevelBits = 9;  // of 2·kMostLevels + 1 numbers
inline constexpr unsigned kKindMask = 7, kPlacesShift = 3, kNoZeroBit = 1u << 5;
inline constexpr unsigned kKnownBits = kKindMask | (3u << kPlacesShift) | kNoZeroBit;

inline uint64_t Zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t Unzigzag(uint64_t code) {
  return static_cast<int64_t>(code >> 1) ^ -static_cast<int64_t>(code & 1);
}

inline uint64_t BytesOfBits(uint64_t bits) { return (bits + 7) / 8; }

// The value of level k.
inline float Level(float step, int k) { return static_cast<float>(double{step} * k); }

// Levels as numbers from 0 on.
inline uint64_t LevelCode(int k, bool no_zero) {
  return k > 0 ? 2 * static_cast<uint64_t>(k) - (no_zero ? 2 : 1)
               : 2 * static_cast<uint64_t>(-k) - (no_zero ? 1 : 0);
}
inline int LevelFrom(uint64_t code, bool no_zero) {
  const uint64_t from_one = code + (no_zero ? 2 : 1);  // 2|k| + (k < 0)
  const int size = static_cast<int>(from_one / 2);
  return from_one % 2 == 0 ? size : -size;
}

}  // namespace macaw::block_format
