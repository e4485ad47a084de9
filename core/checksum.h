#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace macaw {

// Checksum (digest.h) of bytes that lie in pieces, one behind the other.
uint64_t Checksum(std::span<const std::span<const std::byte>> pieces);

}  // namespace macaw
