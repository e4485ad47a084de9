#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct evp_pkey_st;

namespace macaw::identity {

// A private key: ECDSA on the curve P-256. Copies share the key. Thread-safe.
class PrivateKey {
 public:
  static absl::StatusOr<PrivateKey> Generate();
  // Refuses keys of other kinds.
  static absl::StatusOr<PrivateKey> FromPem(absl::string_view pem);

  std::string Pem() const;  // PKCS #8, not encrypted
  evp_pkey_st* get() const { return key_.get(); }

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

// A request for a certificate of `key` (PKCS #10, PEM). It names nobody: the authority decides
// whose certificate it becomes.
absl::StatusOr<std::string> MakeRequest(const PrivateKey& key);

}  // namespace macaw::identity
