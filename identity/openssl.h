#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// What the sources of this room share of OpenSSL. No header of another room includes it.
namespace macaw::identity {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeWith<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, FreeWith<X509_REQ_free>>;
using BioPtr = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;

// Reads from `text`, which must outlive it.
BioPtr Reading(absl::string_view text);
// Memory to write to, and what was written.
BioPtr Writing();
std::string Written(const BioPtr& bio);

// "cannot WHAT: <OpenSSL's reason>". Empties OpenSSL's queue of errors.
absl::Status OpenSslError(absl::string_view what);

}  // namespace macaw::identity
