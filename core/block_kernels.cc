#include "core/block_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/block_format.h"
#include "core/block_pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/block_kernels.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macaw {
namespace HWY_NAMESPACE {

// Of floats' bits.
constexpr int32_t kLeastNormalHalf = 0x38800000;  // 2^-14
constexpr int32_t kLargestHalf = 0x477fe000;      // 65504
constexpr int32_t kInfinityBits = 0x7f800000;

// Adding it rounds a small number to a whole one, half to even.
constexpr float kHalfWhole = 0x1p23f;   // of numbers from 0 on
constexpr float kLevelWhole = 0x3p22f;  // of both signs
constexpr int32_t kLevelZero = std::bit_cast<int32_t>(kLevelWhole);

HWY_INLINE int32_t SizeBits(float value) { return std::bit_cast<int32_t>(value) & INT32_MAX; }

BlockScan Scan(const float* values, size_t count) {
  uint32_t nonzeros = 0, minus_zeros = 0, all_bits = 0;
  int32_t smallest = INT32_MAX, largest = 0;  // smallest: less one
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const int32_t size = SizeBits(values[i]);
    nonzeros += bits != 0 ? 1 : 0;
    minus_zeros |= bits == 0x80000000u ? 1 : 0;
    all_bits |= bits;
    largest = std::max(largest, size);
    smallest = std::min(smallest, (size - 1) & INT32_MAX);  // of zeros the largest number
  }
  return {.nonzeros = nonzeros,
          .has_minus_zero = minus_zeros != 0,
          .are_brains = (all_bits & 0xffff) == 0,
          .smallest = largest == 0 ? 0 : static_cast<uint32_t>(smallest) + 1,
          .largest = static_cast<uint32_t>(largest)};
}

// A half is a multiple of 2^-24, and from 2^-14 on has ten bits behind the first.
bool AreHalves(const float* values, size_t count) {
  constexpr size_t kStride = 64;  // most vectors end here
  for (size_t begin = 0; begin < count; begin += kStride) {
    const size_t end = std::min(begin + kStride, count);
    uint32_t others = 0;
    for (size_t i = begin; i < end; ++i) {
      const auto bits = std::bit_cast<uint32_t>(values[i]);
      const int32_t size = SizeBits(values[i]);
      const float times = std::fabs(values[i]) * 0x1p24f;
      const uint32_t whole = (times + kHalfWhole) - kHalfWhole == times ? 1 : 0;
      const uint32_t is_small = size < kLeastNormalHalf ? 1 : 0;
      const uint32_t is_short = (bits & 0x1fff) == 0 ? 1 : 0;
      const uint32_t fits = size <= kLargestHalf ? 1 : 0;
      const uint32_t is_infinite = size == kInfinityBits ? 1 : 0;
      others |= 1 ^ ((is_small & whole) | ((1 ^ is_small) & ((is_short & fits) | is_infinite)));
    }
    if (others != 0) return false;
  }
  return true;
}

bool AreLevels(const float* values, size_t count, float step, float inverse) {
  uint32_t others = 0;
  for (size_t i = 0; i < count; ++i) {
    // A level is nearer to its k than a thousandth, after both roundings. step · k has 32 bits, and
    // so is rounded once.
    const float k = (values[i] * inverse + kLevelWhole) - kLevelWhole;
    others |= step * k != values[i] ? 1 : 0;
  }
  return others == 0;
}

void LevelCodes(const float* __restrict values, size_t count, float inverse, bool no_zero,
                uint8_t* __restrict codes) {
  const int32_t less = no_zero ? 1 : 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t k = std::bit_cast<int32_t>(values[i] * inverse + kLevelWhole) - kLevelZero;
    const int32_t above = k > 0 ? 1 : 0;
    codes[i] = static_cast<uint8_t>(2 * std::abs(k) - above - less);
  }
}

void HalfCodes(const float* __restrict values, size_t count, uint16_t* __restrict codes) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t size = SizeBits(values[i]);
    const int32_t sign = std::bit_cast<int32_t>(values[i]) >> 16 & 0x8000;
    const float times = std::fabs(values[i]) * 0x1p24f + kHalfWhole;
    const int32_t small = std::bit_cast<int32_t>(times) & 0x7fffff;
    const int32_t normal = std::min((size >> 13) - (112 << 10), 0x7c00);
    codes[i] = static_cast<uint16_t>(sign | (size < kLeastNormalHalf ? small : normal));
  }
}

IntegerScan ScanIntegers(const int64_t* integers, size_t count) {
  uint64_t nonzeros = 0, seen = 0, sizes = 0;
  for (size_t i = 0; i < count; ++i) {
    nonzeros += integers[i] != 0 ? 1 : 0;
    seen |= static_cast<uint64_t>(integers[i]);
    sizes |= static_cast<uint64_t>(integers[i] ^ (integers[i] >> 63));
  }
  return {.nonzeros = nonzeros, .seen = seen, .sizes = sizes};
}

void PackIntegers(const int64_t* integers, size_t count, unsigned width, unsigned shift,
                  std::byte* bits) {
  constexpr size_t kAtOnce = 64, kGroup = 8;
  alignas(64) uint64_t codes[kAtOnce];
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    const size_t some = std::min(kAtOnce, count - begin), groups = (some + kGroup - 1) / kGroup;
    for (size_t i = 0; i < some; ++i) {
      const int64_t v = integers[begin + i];
      codes[i] =
          static_cast<uint64_t>(v ^ (v >> 63)) >> shift << 1 | static_cast<uint64_t>(v) >> 63;
    }
    for (size_t i = some; i < groups * kGroup; ++i) codes[i] = 0;
    PackCodes(codes, groups, width, bits);
    bits += groups * width;
  }
}

HWY_INLINE uint64_t WordAt(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Eight codes lie in `width` whole bytes.
void ByteCodes(const std::byte* __restrict bits, size_t count, unsigned width,
               uint8_t* __restrict codes) {
  const unsigned by = 8 - width;
  const uint64_t four = (uint64_t{1} << 4 * width) - 1, two = (uint64_t{1} << 2 * width) - 1,
                 one = (uint64_t{1} << width) - 1;
  const uint64_t twos = two | two << 32, ones = (one | one << 16) | (one | one << 16) << 32;
  for (size_t i = 0; i < count; i += 8, bits += width) {
    uint64_t word = WordAt(bits);
    word = (word & four) | ((word & four << 4 * width) << 4 * by);
    word = (word & twos) | ((word & twos << 2 * width) << 2 * by);
    word = (word & ones) | ((word & ones << width) << by);
    std::memcpy(codes + i, &word, sizeof(word));
  }
}

void ShortCodes(const std::byte* __restrict bits, size_t count, unsigned width,
                uint16_t* __restrict codes) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  for (size_t i = 0, at = 0; i < count; ++i, at += width)
    codes[i] = static_cast<uint16_t>(WordAt(bits + at / 8) >> at % 8 & mask);
}

HWY_INLINE int64_t Unzigzagged(uint64_t code, unsigned shift) {
  return static_cast<int64_t>(static_cast<uint64_t>(block_format::Unzigzag(code)) << shift);
}

void Integers(const std::byte* __restrict bits, size_t count, unsigned width, unsigned shift,
              int64_t* __restrict integers) {
  constexpr unsigned kInOneWord = 57;  // wherever in its byte a code begins
  const uint64_t mask = ~uint64_t{0} >> (64 - width);
  if (width <= kInOneWord) {
    for (size_t i = 0, at = 0; i < count; ++i, at += width)
      integers[i] = Unzigzagged(WordAt(bits + at / 8) >> at % 8 & mask, shift);
    return;
  }
  for (size_t i = 0, at = 0; i < count; ++i, at += width) {
    const std::byte* const from = bits + at / 8;
    const auto ninth = static_cast<uint64_t>(from[8]);
    const uint64_t code = WordAt(from) >> at % 8 | ninth << 1 << (63 - at % 8);
    integers[i] = Unzigzagged(code & mask, shift);
  }
}

void Levels(const uint8_t* __restrict codes, size_t count, float step, bool no_zero,
            float* __restrict values) {
  const int32_t less = no_zero ? 2 : 1;
  for (size_t i = 0; i < count; ++i) {
    const int32_t from_one = codes[i] + less;  // 2|k| + (k < 0)
    const int32_t below = from_one & 1;
    const int32_t k = ((from_one >> 1) ^ -below) + below;
    values[i] = step * static_cast<float>(k);  // of 32 bits, so rounded once
  }
}

void Halves(const uint16_t* __restrict codes, size_t count, float* __restrict values) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t size = codes[i] & 0x7fff;
    const auto sign = static_cast<int32_t>(uint32_t{codes[i]} >> 15 << 31);
    const int32_t small = std::bit_cast<int32_t>(static_cast<float>(size) * 0x1p-24f);
    // Of infinity and NaN the exponent is the largest one, as it is in the half.
    const int32_t others = (size << 13) + (size < 0x7c00 ? 112 << 23 : 224 << 23);
    const int32_t is_small = size < 0x400 ? -1 : 0;
    values[i] = std::bit_cast<float>(sign | (small & is_small) | (others & ~is_small));
  }
}

void Brains(const uint16_t* __restrict codes, size_t count, float* __restrict values) {
  for (size_t i = 0; i < count; ++i) values[i] = std::bit_cast<float>(uint32_t{codes[i]} << 16);
}

void Zero(int64_t* integers, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<int64_t> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Zero(tag), tag, integers + i);
    HWY_FENCE;  // or the compiler calls memset
  }
  for (; i < count; ++i) integers[i] = 0;
}

const BlockKernels& TheBlockKernels() {
  static constexpr BlockKernels kKernels = {.scan = Scan,
                                            .are_halves = AreHalves,
                                            .are_levels = AreLevels,
                                            .level_codes = LevelCodes,
                                            .half_codes = HalfCodes,
                                            .scan_integers = ScanIntegers,
                                            .pack_integers = PackIntegers,
                                            .byte_codes = ByteCodes,
                                            .short_codes = ShortCodes,
                                            .integers = Integers,
                                            .levels = Levels,
                                            .halves = Halves,
                                            .brains = Brains,
                                            .zero = Zero};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw {

const BlockKernels& BlockKernelsOf(Isa isa) { MACAW_FOR_ISA(isa, TheBlockKernels); }

const BlockKernels& BestBlockKernels() {
  static const BlockKernels& best = BlockKernelsOf(BestIsa());
  return best;
}

}  // namespace macaw
#endif  // HWY_ONCE
