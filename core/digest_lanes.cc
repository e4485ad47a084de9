#include "core/digest_lanes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/digest_lanes.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// BLAKE2b (RFC 7693) with a result of 32 bytes and without a key. It is made of additions, xors and
// rotations of 64-bit words, so that texts of one length can be hashed beside each other, one in
// each lane.
HWY_BEFORE_NAMESPACE();
namespace macaw {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::CappedTag<uint64_t, 8>;
using Vector = hn::Vec<Words>;

constexpr size_t kLanes = hn::MaxLanes(Words());
constexpr size_t kBlock = 128;  // bytes
constexpr uint64_t kStart[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr uint64_t kParameters = 0x01010020;  // 32 bytes, no key, no tree
constexpr uint8_t kOrder[12][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
                                    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

template <int kBits>
HWY_INLINE Vector Rotate(Vector v) {
#if HWY_TARGET == HWY_AVX3
  return hn::RotateRight<kBits>(v);
#else
  // Without an instruction for it, a rotation by bytes is a shuffle, and one by 63 an addition.
  const Words words;
  if constexpr (kBits == 32) {
    const hn::Repartition<uint32_t, Words> halves;
    return hn::BitCast(words, hn::Shuffle2301(hn::BitCast(halves, v)));
  } else if constexpr (kBits == 24 || kBits == 16) {
    constexpr uint8_t k = kBits / 8;
    const hn::Repartition<uint8_t, Words> bytes;
    alignas(16) constexpr uint8_t kFrom[16] = {
        k % 8,           (k + 1) % 8,     (k + 2) % 8,     (k + 3) % 8,
        (k + 4) % 8,     (k + 5) % 8,     (k + 6) % 8,     (k + 7) % 8,
        8 + k % 8,       8 + (k + 1) % 8, 8 + (k + 2) % 8, 8 + (k + 3) % 8,
        8 + (k + 4) % 8, 8 + (k + 5) % 8, 8 + (k + 6) % 8, 8 + (k + 7) % 8};
    return hn::BitCast(words,
                       hn::TableLookupBytes(hn::BitCast(bytes, v), hn::LoadDup128(bytes, kFrom)));
  } else {
    static_assert(kBits == 63);
    return hn::Or(hn::Add(v, v), hn::ShiftRight<63>(v));
  }
#endif
}

HWY_INLINE void Mix(Vector& a, Vector& b, Vector& c, Vector& d, Vector x, Vector y) {
  a = hn::Add(hn::Add(a, x), b);
  d = Rotate<32>(hn::Xor(d, a));
  c = hn::Add(c, d);
  b = Rotate<24>(hn::Xor(b, c));
  a = hn::Add(hn::Add(a, y), b);
  d = Rotate<16>(hn::Xor(d, a));
  c = hn::Add(c, d);
  b = Rotate<63>(hn::Xor(b, c));
}

template <size_t kRound>
HWY_INLINE void Round(Vector (&v)[16], const Vector (&m)[16]) {
  constexpr const auto& s = kOrder[kRound];
  Mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
  Mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
  Mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
  Mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
  Mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
  Mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
  Mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
  Mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
}

// Words of one text, or with avx512 four words of text i and four of text i + 4.
HWY_INLINE Vector LoadRow(const std::byte* const* texts, size_t i, size_t at) {
  const Words words;
  const auto load = [at](auto tag, const std::byte* text) HWY_ATTR {
    const hn::Repartition<uint8_t, decltype(tag)> bytes;
    return hn::BitCast(tag, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(text + at)));
  };
#if HWY_TARGET == HWY_AVX3
  const hn::Half<Words> half;
  return hn::Combine(words, load(half, texts[i + 4]), load(half, texts[i]));
#else
  return load(words, texts[i]);
#endif
}

// m[i] = word i of each text's block that begins at byte `at`.
HWY_INLINE void LoadBlock(const std::byte* const* texts, size_t at, Vector (&m)[16]) {
  const Words words;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  for (size_t i = 0; i < 16; i += 4) {
    const Vector row0 = LoadRow(texts, 0, at + 8 * i), row1 = LoadRow(texts, 1, at + 8 * i);
    const Vector row2 = LoadRow(texts, 2, at + 8 * i), row3 = LoadRow(texts, 3, at + 8 * i);
    const Vector even01 = hn::InterleaveLower(words, row0, row1);
    const Vector even23 = hn::InterleaveLower(words, row2, row3);
    const Vector odd01 = hn::InterleaveUpper(words, row0, row1);
    const Vector odd23 = hn::InterleaveUpper(words, row2, row3);
    m[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(even23), even01);
    m[i + 1] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd23), odd01);
    m[i + 2] = hn::OddEvenBlocks(even23, hn::SwapAdjacentBlocks(even01));
    m[i + 3] = hn::OddEvenBlocks(odd23, hn::SwapAdjacentBlocks(odd01));
  }
#else
  static_assert(kLanes == 2);
  for (size_t i = 0; i < 16; i += 2) {
    const Vector row0 = LoadRow(texts, 0, at + 8 * i), row1 = LoadRow(texts, 1, at + 8 * i);
    m[i] = hn::InterleaveLower(words, row0, row1);
    m[i + 1] = hn::InterleaveUpper(words, row0, row1);
  }
#endif
}

// Adds the block at byte `at` to the state. `hashed`: bytes of a text up to the end of this block.
HWY_INLINE void Compress(Vector (&h)[8], const std::byte* const* texts, size_t at, uint64_t hashed,
                         uint64_t last) {
  const Words words;
  Vector m[16], v[16];
  LoadBlock(texts, at, m);
  for (size_t i = 0; i < 8; ++i) v[i] = h[i];
  for (size_t i = 0; i < 8; ++i) v[8 + i] = hn::Set(words, kStart[i]);
  v[12] = hn::Xor(v[12], hn::Set(words, hashed));
  v[14] = hn::Xor(v[14], hn::Set(words, last));
  Round<0>(v, m);
  Round<1>(v, m);
  Round<2>(v, m);
  Round<3>(v, m);
  Round<4>(v, m);
  Round<5>(v, m);
  Round<6>(v, m);
  Round<7>(v, m);
  Round<8>(v, m);
  Round<9>(v, m);
  Round<10>(v, m);
  Round<11>(v, m);
  for (size_t i = 0; i < 8; ++i) h[i] = hn::Xor(h[i], hn::Xor(v[i], v[8 + i]));
}

// Hashes kLanes texts.
std::array<Digest, 8> HashTogether(const std::byte* const* texts, size_t length) {
  static_assert(std::endian::native == std::endian::little);
  const Words words;
  Vector h[8];
  for (size_t i = 0; i < 8; ++i)
    h[i] = hn::Set(words, i == 0 ? kStart[0] ^ kParameters : kStart[i]);
  // The last block, perhaps a whole one, is marked and filled up with zeros.
  const size_t blocks = length == 0 ? 0 : (length - 1) / kBlock;
  for (size_t b = 0; b < blocks; ++b) Compress(h, texts, b * kBlock, (b + 1) * kBlock, 0);
  const size_t rest = length - blocks * kBlock;
  std::byte ends[kLanes][kBlock] = {};
  const std::byte* starts[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (rest > 0) std::memcpy(ends[lane], texts[lane] + blocks * kBlock, rest);
    starts[lane] = ends[lane];
  }
  Compress(h, starts, 0, length, ~uint64_t{0});
  std::array<Digest, 8> digests;
  for (size_t i = 0; i < 4; ++i) {
    HWY_ALIGN uint64_t word[kLanes];
    hn::Store(h[i], words, word);
    for (size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(digests[lane].bytes.data() + 8 * i, &word[lane], sizeof(word[lane]));
  }
  return digests;
}

size_t Lanes() { return kLanes; }
#else
// Without vectors libsodium is faster.
std::array<Digest, 8> HashTogether(const std::byte* const* texts, size_t length) {
  return {DigestOf(std::span(texts[0], length))};
}
size_t Lanes() { return 1; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace macaw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw {
namespace {

std::array<Digest, 8> Together(Isa isa, const std::byte* const* texts, size_t length) {
  MACAW_FOR_ISA(isa, HashTogether, texts, length);
}

}  // namespace

size_t DigestLanes(Isa isa) { MACAW_FOR_ISA(isa, Lanes); }

std::vector<Digest> DigestsOfEqualLength(Isa isa, std::span<const std::byte* const> texts,
                                         size_t length) {
  const size_t lanes = DigestLanes(isa);
  std::vector<Digest> digests;
  digests.reserve(texts.size());
  while (digests.size() < texts.size()) {
    const auto rest = texts.subspan(digests.size());
    // A group costs the same however many of its lanes are used: as much as two texts by libsodium
    // (bench/digest.cc).
    if (rest.size() == 1 || lanes == 1) {
      digests.push_back(DigestOf(std::span(rest[0], length)));
      continue;
    }
    std::array<const std::byte*, 8> group;
    group.fill(rest[0]);
    const size_t used = std::min(lanes, rest.size());
    std::copy_n(rest.begin(), used, group.begin());
    const std::array<Digest, 8> hashed = Together(isa, group.data(), length);
    digests.insert(digests.end(), hashed.begin(), hashed.begin() + used);
  }
  return digests;
}

}  // namespace macaw
#endif
