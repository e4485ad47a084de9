#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "identity/certificate.h"

namespace macaw::identity {

// What an operator gives to a new node: a secret that is good for one certificate, and enough of
// the authority's fingerprint that the node cannot take another server for its own.
struct Invite {
  std::array<uint8_t, 16> secret{};
  std::array<uint8_t, 16> pin{};  // the first half of the authority's Fingerprint()

  // A random secret.
  static absl::StatusOr<Invite> To(const Certificate& authority);
  // "MACAW-4Q7ZK-…": letters and digits that are not mistaken for each other, with a check sum.
  std::string Code() const;
  // Takes a code in any case, with or without dashes and spaces. The error says whether it is
  // incomplete or mistyped.
  static absl::StatusOr<Invite> FromCode(absl::string_view code);

  bool Pins(const Certificate& authority) const;
  // What an authority keeps of the secret.
  Digest SecretDigest() const;
};

}  // namespace macaw::identity
