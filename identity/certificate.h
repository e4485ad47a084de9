#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/digest.h"
#include "identity/key.h"

struct x509_st;

namespace macaw::identity {

// What the holder of a certificate may be. A device trains the clients that it owns and no others;
// a worker also trains clients whose rows many workers have; an operator changes runs and nodes.
enum class Role : uint8_t { kAuthority, kServer, kDevice, kWorker, kOperator };
absl::string_view Name(Role role);  // "device"
absl::StatusOr<Role> ParseRole(absl::string_view name);

struct Subject {
  std::string name;
  Role role = Role::kDevice;
  friend bool operator==(const Subject&, const Subject&) = default;
};

// A name is 1 to 64 letters, digits, dots, dashes and underscores, and does not begin with a dot or
// dash: it stands in certificates, file names and logs.
absl::Status CheckName(absl::string_view name);

struct Validity {
  absl::Time from, until;
};

// An X.509 certificate of an authority of this kind. Its subject is CN = name, OU = role; no
// address is in it, so a server may move. Copies share it. Thread-safe.
class Certificate {
 public:
  // The first certificate of `pem`. Checks its form alone (identity/verify.h checks the rest).
  static absl::StatusOr<Certificate> FromPem(absl::string_view pem);

  const Subject& subject() const { return subject_; }
  const std::string& serial() const { return serial_; }  // hexadecimal
  const Validity& validity() const { return validity_; }
  std::string Pem() const;
  // The name of the certificate's bytes.
  Digest Fingerprint() const;
  Digest KeyDigest() const;  // of its public key
  // Whether it is the certificate of this key.
  bool IsOf(const PrivateKey& key) const;
  x509_st* get() const { return certificate_.get(); }

 private:
  Certificate() = default;
  std::shared_ptr<x509_st> certificate_;
  Subject subject_;
  std::string serial_;
  Validity validity_;
};

// The certificate that an authority signs for itself.
absl::StatusOr<Certificate> MakeAuthorityCertificate(const PrivateKey& key, const std::string& name,
                                                     const Validity& validity);

struct Issuer {
  const PrivateKey& key;
  const Certificate& certificate;
};

// Signs a certificate for the key of `request` (PKCS #10, PEM), whose own signature is checked
// first: the sender has that key.
absl::StatusOr<Certificate> Issue(const Issuer& issuer, absl::string_view request,
                                  const Subject& subject, const Validity& validity);

}  // namespace macaw::identity
