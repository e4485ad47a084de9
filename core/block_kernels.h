#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"

namespace macaw {

// What a block of floats holds (blocks.h).
struct BlockScan {
  size_t nonzeros = 0;  // −0 counts
  bool has_minus_zero = false;
  bool are_brains = false;  // the lower half of each is zero
  // Bits of the least and the largest |v| that is not zero; a NaN is above infinity.
  uint32_t smallest = 0, largest = 0;
};

// What a block of integers holds. With u = v for v ≥ 0 and −v − 1 for others, the zigzag code of v
// is 2u, and one more where v < 0.
struct IntegerScan {
  size_t nonzeros = 0;
  uint64_t seen = 0;   // the bits of all v
  uint64_t sizes = 0;  // the bits of all u
};

// The largest |k| that the loops over levels take.
inline constexpr int kMostKernelLevel = 255;

// The loops over the values of a block, compiled for each instruction set, with the same results on
// all. Blocks of any size. All threads.
struct BlockKernels {
  BlockScan (*scan)(const float* values, size_t count);

  // Whether each is an IEEE 754 binary16. False with a NaN.
  bool (*are_halves)(const float* values, size_t count);

  // With `inverse` = 1/step rounded and finite, and |v| ≤ step · kMostKernelLevel, but for
  // rounding: whether each value is float(step · k) for a whole k; and these k as numbers from 0
  // on, 2|k| less one where k > 0, and less one more where `no_zero`; they must be below 256.
  bool (*are_levels)(const float* values, size_t count, float step, float inverse);
  void (*level_codes)(const float* values, size_t count, float inverse, bool no_zero,
                      uint8_t* codes);

  // Of values that are halves.
  void (*half_codes)(const float* values, size_t count, uint16_t* codes);

  IntegerScan (*scan_integers)(const int64_t* integers, size_t count);
  // The zigzag codes of integers >> shift, which have `width` bits, 1 to 64, side by side, lowest
  // first. Writes whole groups of eight, and up to kBytesBeyond bytes behind them.
  void (*pack_integers)(const int64_t* integers, size_t count, unsigned width, unsigned shift,
                        std::byte* bits);

  // ---- Back

  // Codes of `width` bits that lie side by side, lowest first: of up to 8 bits, and of up to 16.
  // Read up to kBytesBeyond behind them, and byte_codes writes whole groups of eight.
  void (*byte_codes)(const std::byte* bits, size_t count, unsigned width, uint8_t* codes);
  void (*short_codes)(const std::byte* bits, size_t count, unsigned width, uint16_t* codes);
  // Of zigzag codes of up to 64 bits: what each stands for, times 2^shift. Reads beyond, too.
  void (*integers)(const std::byte* bits, size_t count, unsigned width, unsigned shift,
                   int64_t* integers);

  // What level_codes gave, and half_codes; and of the upper halves of floats.
  void (*levels)(const uint8_t* codes, size_t count, float step, bool no_zero, float* values);
  void (*halves)(const uint16_t* codes, size_t count, float* values);
  void (*brains)(const uint16_t* codes, size_t count, float* values);

  // Zeros. Stores of vectors: memset's string instruction takes twice as long for a block that is
  // in no cache.
  void (*zero)(int64_t* integers, size_t count);
};

inline constexpr size_t kBytesBeyond = 8;

// Those of one of SupportedIsas(), and of the best.
const BlockKernels& BlockKernelsOf(Isa isa);
const BlockKernels& BestBlockKernels();

}  // namespace macaw
