#include "core/sha256.h"

#include <sodium.h>

#include <array>

#include "absl/strings/escaping.h"

namespace macaw {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

}  // namespace macaw
