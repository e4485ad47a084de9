#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/philox.h"
#include "core/random.h"
#include "core/simd.h"

// Normals in bulk. All operations are element-wise over the blocks of a group, and libm is not used
// because its bits differ between versions and processors. So the compiler can vectorise the loops
// to any width and the values stay the same.
namespace macaw {
namespace {

constexpr int kBlocks = PhiloxGroup::kBlocks;
constexpr int kGroup = 4 * kBlocks;  // normals per group
constexpr float kQuarterOfPi = 0.785398163397448F;

// The float nearest to ln(x) for 0 < x <= 1, to about one unit in the last place: x = 2^e · m with
// m in [√½, √2), and ln m = 2·artanh((m − 1)/(m + 1)) as its series.
inline float Log(float x) {
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
inline void Pair(uint32_t radius_word, uint32_t angle_word, float* first, float* second) {
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

MACAW_CLONES void FillGroups(const uint32_t* key, const uint32_t* high, uint64_t first_block,
                             size_t groups, float* out) {
  for (size_t group = 0; group < groups; ++group) {
    const PhiloxGroup words(key, high, first_block + group * kBlocks);
    float* lanes = out + group * kGroup;
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

}  // namespace

void RandomStream::FillNormal(std::span<float> out) {
  const size_t whole = out.size() / kGroup;
  FillGroups(key_, high_, block_, whole, out.data());
  block_ += whole * kBlocks;
  if (const std::span<float> rest = out.subspan(whole * kGroup); !rest.empty()) {
    float group[kGroup];
    FillGroups(key_, high_, block_, 1, group);
    std::copy_n(group, rest.size(), rest.begin());
    block_ += kBlocks;
  }
  used_ = 4;
  has_spare_ = false;
}

}  // namespace macaw
