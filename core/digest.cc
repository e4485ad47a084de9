#include "core/digest.h"

#include <sodium.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace macaw {

std::string Digest::Hex() const {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<Digest> Digest::FromHex(absl::string_view hex) {
  Digest digest;
  const bool clean = hex.find_first_not_of("0123456789abcdefABCDEF") == absl::string_view::npos;
  if (hex.size() != 2 * digest.bytes.size() || !clean) {
    return absl::InvalidArgumentError(
        absl::StrCat("a digest is 64 hexadecimal digits, got \"", hex.substr(0, 80), "\""));
  }
  const std::string raw = absl::HexStringToBytes(hex);
  std::memcpy(digest.bytes.data(), raw.data(), raw.size());
  return digest;
}

struct Digester::State {
  crypto_generichash_state hash;
};

Digester::Digester() : state_(std::make_unique<State>()) {
  // Selects the kernels for this processor. Without it libsodium uses portable code, which is half
  // as fast.
  static const bool chosen = sodium_init() >= 0;
  static_cast<void>(chosen);
  crypto_generichash_init(&state_->hash, nullptr, 0, sizeof(Digest::bytes));
}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

Digester& Digester::Add(std::span<const std::byte> bytes) {
  crypto_generichash_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
  return *this;
}

Digester& Digester::Add(absl::string_view text) {
  Add(static_cast<uint64_t>(text.size()));
  return Add(BytesOf(text));
}

Digester& Digester::Add(uint64_t number) {
  std::array<std::byte, 8> raw;
  for (int i = 0; i < 8; ++i) raw[i] = static_cast<std::byte>(number >> (8 * i));
  return Add(std::span<const std::byte>(raw));
}

Digest Digester::Finish() {
  Digest digest;
  crypto_generichash_final(&state_->hash, digest.bytes.data(), digest.bytes.size());
  return digest;
}

Digest DigestOf(std::span<const std::byte> bytes) {
  Digester digester;
  digester.Add(bytes);
  return digester.Finish();
}

Digest DigestOf(absl::string_view text) { return DigestOf(BytesOf(text)); }

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace macaw
