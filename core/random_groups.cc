#include "core/random_groups.h"

#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/random_groups.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macaw {
namespace HWY_NAMESPACE {

constexpr int kBlocks = kBlocksInGroup;

// Sixteen consecutive blocks of Philox4x32-10 (Salmon et al., SC'11), word by word: the lower half
// of w[j][i] is word j of block first + i; the upper half means nothing, so that the compiler's
// vectors multiply 32 by 32 bits without moving anything.
struct PhiloxGroup {
  uint64_t w[4][kBlocks];

  // `high`: the upper half of every block's counter.
  HWY_INLINE PhiloxGroup(const uint32_t* key, const uint32_t* high, uint64_t first) {
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

void PairsOfGroups(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
                   uint64_t* out) {
  for (size_t group = 0; group < groups; ++group, first_block += kBlocks) {
    const PhiloxGroup words(key, high, first_block);
    uint64_t first[kBlocks], second[kBlocks];
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      first[i] = (words.w[0][i] & 0xFFFFFFFF) | (words.w[1][i] << 32);
      second[i] = (words.w[2][i] & 0xFFFFFFFF) | (words.w[3][i] << 32);
    }
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      out[2 * i] = first[i];
      out[2 * i + 1] = second[i];
    }
    out += 2 * kBlocks;
  }
}

constexpr float kQuarterOfPi = 0.785398163397448F;

// The float nearest to ln(x) for 0 < x <= 1, to about one unit in the last place: x = 2^e · m with
// m in [√½, √2), and ln m = 2·artanh((m − 1)/(m + 1)) as its series.
HWY_INLINE float Log(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const float m = std::bit_cast<float>(bits - exponent * (1 << 23));
  const float s = (m - 1.0F) / (m + 1.0F);
  const float z = s * s;
  float series = z * (1.0F / 9) + (1.0F / 7);
  series = series * z + (1.0F / 5);
  series = series * z + (1.0F / 3);
  const float tail = 2.0F * s * z * series;
  return static_cast<float>(exponent) * 0.693147180559945F + (2.0F * s + tail);
}

// Box-Muller on one pair of words: u in (0, 1] from all 32 bits of the first, the angle from the
// second, whose two upper bits are the quadrant and whose next 24 the angle inside it, −π/4 … π/4.
HWY_INLINE void Pair(uint32_t radius_word, uint32_t angle_word, float* first, float* second) {
  const float high = static_cast<float>(static_cast<int32_t>(radius_word >> 16));
  const float low = static_cast<float>(static_cast<int32_t>(radius_word & 0xffff));
  const float u = (high * 65536.0F + (low + 1.0F)) * 0x1.0p-32F;
  const float radius = std::sqrt(-2.0F * Log(u));

  const int32_t inside = static_cast<int32_t>(angle_word << 2) >> 8;
  const float x = static_cast<float>(inside) * (kQuarterOfPi * 0x1.0p-23F);
  const float z = x * x;
  float sine = z * (1.0F / 362880) - (1.0F / 5040);
  sine = sine * z + (1.0F / 120);
  sine = sine * z - (1.0F / 6);
  sine = sine * z * x + x;
  float cosine = z * (1.0F / 40320) - (1.0F / 720);
  cosine = cosine * z + (1.0F / 24);
  cosine = cosine * z - 0.5F;
  cosine = cosine * z + 1.0F;

  // Turn (cosine, sine) by quadrant · π/2; signs are flipped as bits so that no branch is left.
  const uint32_t quadrant = angle_word >> 30;
  const uint32_t swap = 0U - (quadrant & 1U);
  const auto c = std::bit_cast<uint32_t>(cosine);
  const auto s = std::bit_cast<uint32_t>(sine);
  const uint32_t a = ((s & swap) | (c & ~swap)) ^ (((quadrant ^ (quadrant >> 1)) & 1U) << 31);
  const uint32_t b = ((c & swap) | (s & ~swap)) ^ ((quadrant >> 1) << 31);
  *first = radius * std::bit_cast<float>(a);
  *second = radius * std::bit_cast<float>(b);
}

void NormalsOfGroups(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
                     float* out) {
  for (size_t group = 0; group < groups; ++group) {
    const PhiloxGroup words(key, high, first_block + group * kBlocks);
    float* lanes = out + group * kNormalsInGroup;
    for (int half = 0; half < 2; ++half) {
      uint32_t radius[kBlocks], angle[kBlocks];
#pragma GCC unroll 1
      for (int i = 0; i < kBlocks; ++i) {
        radius[i] = static_cast<uint32_t>(words.w[2 * half][i]);
        angle[i] = static_cast<uint32_t>(words.w[2 * half + 1][i]);
      }
#pragma GCC unroll 1
      for (int i = 0; i < kBlocks; ++i) Pair(radius[i], angle[i], lanes + i, lanes + kBlocks + i);
      lanes += 2 * kBlocks;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw {

void FillPairs(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
               uint64_t* out) {
  MACAW_FOR_ISA(BestIsa(), PairsOfGroups, key, high, first_block, groups, out);
}

void FillNormals(const uint32_t* key, const uint32_t* high, uint64_t first_block, size_t groups,
                 float* out) {
  MACAW_FOR_ISA(BestIsa(), NormalsOfGroups, key, high, first_block, groups, out);
}

}  // namespace macaw
#endif  // HWY_ONCE
