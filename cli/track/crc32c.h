#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace macaw::cli {

// CRC-32C (Castagnoli; RFC 3720, B.4), a byte at a time: event files are small. Abseil has it from
// the release after Debian 12's on.
inline uint32_t Crc32c(absl::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0u);
      table[i] = rest;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

// As TFRecord files have it, whose records may hold checksums themselves.
inline uint32_t MaskedCrc32c(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace macaw::cli
