#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace macaw {

// SHA-256 (FIPS 180-4) in hexadecimal, for files that other programs check: `sha256sum`, RO-Crate.
// What Macaw itself names has a Digest (digest.h).
std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace macaw
