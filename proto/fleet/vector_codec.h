#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"

namespace macaw::fleet {

// Several flat vectors as one blob: a header (magic, version, count, then each layout's digest and
// size), then each vector's bytes from a 64-byte boundary, little-endian. Equal vectors give equal
// bytes, hence equal digests.
AlignedBuffer EncodeVectors(std::span<const ConstVectorView> vectors);

// Views into `bytes`, which must outlive them. Refuses anything but exactly these layouts; the
// error gives the number of the vector and the reason. Safe for any bytes.
absl::StatusOr<std::vector<ConstVectorView>> DecodeVectors(std::span<const std::byte> bytes,
                                                           std::span<const LayoutPtr> layouts);

// What stands in front of the vector in the bytes of one, and how many bytes these are in all.
inline constexpr size_t kVectorHeader = 64;
std::array<std::byte, kVectorHeader> HeaderOf(const ParameterLayout& layout);
inline uint64_t EncodedBytes(const ParameterLayout& layout) {
  return kVectorHeader + layout.bytes();
}
// How many bytes there are of several.
uint64_t EncodedBytes(std::span<const LayoutPtr> layouts);

// Whether `bytes`, which EncodeVectors made of one vector, are what it would make of this one.
bool Holds(std::span<const std::byte> bytes, const ConstVectorView& vector);

}  // namespace macaw::fleet
