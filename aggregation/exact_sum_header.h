#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregation/channel.h"

namespace macaw::aggregation {

// How both wire forms of a sum begin: Header, then one ChannelHeader per channel. All
// little-endian. Private to this room.
struct SumHeader {
  static constexpr std::array<char, 8> kMagic = {'m', 'a', 'c', 'a', 'w', 's', 'u', 'm'};

  std::array<char, 8> magic = kMagic;
  uint32_t version = 1;  // SumForm
  uint32_t channels = 0;
  std::array<uint8_t, 32> plan{};  // Plan::digest
  uint64_t clients = 0;
  uint64_t multiplicity = 0;
  int64_t weight = 0;
  double alone_weight = 0;  // ExactSum::State; kCompact only
};
static_assert(sizeof(SumHeader) == 80);

struct SumChannelHeader {
  double max_abs = 0;
  uint64_t collected = 0;
};
static_assert(sizeof(SumChannelHeader) == 16);

constexpr uint64_t SumHeadBytes(size_t channels) {
  return sizeof(SumHeader) + channels * sizeof(SumChannelHeader);
}

// A collected vector in the aligned form: this, then its bytes; each begins on 64 bytes.
struct CollectedHeader {
  uint64_t client = 0;
  uint64_t multiplicity = 0;
};
static_assert(sizeof(CollectedHeader) == 16);

constexpr uint64_t Padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

inline uint64_t CollectedBytes(const ChannelSpec& spec) {
  return Padded(sizeof(CollectedHeader) + spec.layout->bytes());
}

template <typename T>
T ReadAt(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

inline absl::Status RefusedSum(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("encoded sum refused: ", why));
}

}  // namespace macaw::aggregation
