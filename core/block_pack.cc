#include "core/block_pack.h"

#include <array>
#include <cstring>
#include <utility>

namespace macaw {
namespace {

constexpr unsigned kWordBits = 64;
constexpr size_t kGroup = 8;  // codes in a whole number of bytes, whatever their width

using PackLoop = void (*)(const uint64_t* codes, size_t groups, std::byte* out);

// Adds code I of a group to the word that it begins in, which is written once it is full. Which
// word, and which of its bits, is known to the compiler: no code waits for the place of the one
// before it.
template <unsigned kWidth, size_t I>
inline void PackOne(const uint64_t* codes, uint64_t& word, std::byte* out) {
  constexpr unsigned kBit = I * kWidth % kWordBits;
  if constexpr (kBit == 0) {
    word = codes[I];
  } else {
    word |= codes[I] << kBit;
  }
  if constexpr (kBit + kWidth >= kWordBits)
    std::memcpy(out + I * kWidth / kWordBits * sizeof(word), &word, sizeof(word));
  if constexpr (kBit + kWidth > kWordBits) word = codes[I] >> (kWordBits - kBit);
}

template <unsigned kWidth, size_t... I>
inline void PackGroup(const uint64_t* codes, std::byte* out, std::index_sequence<I...>) {
  uint64_t word = 0;
  (PackOne<kWidth, I>(codes, word, out), ...);
  if constexpr (kGroup * kWidth % kWordBits != 0)
    std::memcpy(out + kGroup * kWidth / kWordBits * sizeof(word), &word, sizeof(word));
}

template <unsigned kWidth>
void PackOfWidth(const uint64_t* codes, size_t groups, std::byte* out) {
  for (size_t g = 0; g < groups; ++g, codes += kGroup, out += kWidth)
    PackGroup<kWidth>(codes, out, std::make_index_sequence<kGroup>());
}

template <unsigned... kLess>
constexpr std::array<PackLoop, sizeof...(kLess)> OfEachWidth(
    std::integer_sequence<unsigned, kLess...>) {
  return {PackOfWidth<kLess + 1>...};
}

}  // namespace

void PackCodes(const uint64_t* codes, size_t groups, unsigned width, std::byte* out) {
  static constexpr std::array<PackLoop, kWordBits> kPacks =
      OfEachWidth(std::make_integer_sequence<unsigned, kWordBits>());
  kPacks[width - 1](codes, groups, out);
}

}  // namespace macaw
