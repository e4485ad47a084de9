#include "identity/invite.h"

#include <openssl/rand.h>

#include <algorithm>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/status.h"
#include "identity/openssl.h"

namespace macaw::identity {
namespace {

// Crockford's base 32: no I, L, O or U.
constexpr absl::string_view kLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr absl::string_view kPrefix = "MACAW";
constexpr size_t kBytes = 34;  // secret, pin, two bytes of check sum
constexpr size_t kSymbols = (kBytes * 8 + 4) / 5;
constexpr size_t kGroup = 5;

using Bytes = std::array<uint8_t, kBytes>;

void PutCheckSum(Bytes& bytes) {
  const uint64_t sum = Checksum(std::as_bytes(std::span(bytes).first(kBytes - 2)));
  bytes[kBytes - 2] = static_cast<uint8_t>(sum >> 8);
  bytes[kBytes - 1] = static_cast<uint8_t>(sum);
}

// The value of a letter as people write it, or -1.
int ValueOf(char c) {
  c = absl::ascii_toupper(static_cast<unsigned char>(c));
  if (c == 'O') c = '0';
  if (c == 'I' || c == 'L') c = '1';
  const size_t at = kLetters.find(c);
  return at == absl::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

absl::StatusOr<Invite> Invite::To(const Certificate& authority) {
  Invite invite;
  if (RAND_bytes(invite.secret.data(), static_cast<int>(invite.secret.size())) != 1)
    return OpenSslError("draw a secret");
  const Digest fingerprint = authority.Fingerprint();
  std::ranges::copy_n(fingerprint.bytes.begin(), invite.pin.size(), invite.pin.begin());
  return invite;
}

std::string Invite::Code() const {
  Bytes bytes{};
  std::ranges::copy(secret, bytes.begin());
  std::ranges::copy(pin, bytes.begin() + secret.size());
  PutCheckSum(bytes);
  std::string code(kPrefix);
  uint32_t held = 0;
  int bits = 0;
  size_t written = 0;
  const auto put = [&](uint32_t value) {
    if (written++ % kGroup == 0) code += '-';
    code += kLetters[value & 31];
  };
  for (const uint8_t byte : bytes) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) put(held >> (bits - 5));
  }
  if (bits > 0) put(held << (5 - bits));
  return code;
}

absl::StatusOr<Invite> Invite::FromCode(absl::string_view code) {
  std::string symbols;
  for (const char c : code) {
    if (c != '-' && !absl::ascii_isspace(static_cast<unsigned char>(c)))
      symbols += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  absl::string_view rest = symbols;
  if (!absl::ConsumePrefix(&rest, kPrefix) || rest.size() != kSymbols) {
    return absl::InvalidArgumentError(
        absl::StrCat("the invite is incomplete: it begins with ", kPrefix, "- and has ", kSymbols,
                     " letters and digits behind it, not ", rest.size()));
  }
  Bytes bytes{};
  uint32_t held = 0;
  int bits = 0;
  size_t at = 0;
  for (const char c : rest) {
    const int value = ValueOf(c);
    if (value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the invite is mistyped: it cannot have a \"", std::string(1, c), "\""));
    }
    held = (held << 5) | static_cast<uint32_t>(value);
    bits += 5;
    if (bits >= 8 && at < kBytes) {
      bytes[at++] = static_cast<uint8_t>(held >> (bits - 8));
      bits -= 8;
    }
  }
  Bytes right = bytes;
  PutCheckSum(right);
  if (right != bytes)
    return absl::InvalidArgumentError("the invite is mistyped: its check sum is wrong");
  Invite invite;
  std::ranges::copy_n(bytes.begin(), invite.secret.size(), invite.secret.begin());
  std::ranges::copy_n(bytes.begin() + invite.secret.size(), invite.pin.size(), invite.pin.begin());
  return invite;
}

bool Invite::Pins(const Certificate& authority) const {
  const Digest fingerprint = authority.Fingerprint();
  return std::ranges::equal(pin, std::span(fingerprint.bytes).first(pin.size()));
}

Digest Invite::SecretDigest() const { return DigestOf(std::as_bytes(std::span(secret))); }

}  // namespace macaw::identity
