#include "identity/key.h"

#include <openssl/ec.h>
#include <openssl/pem.h>

#include <utility>

#include "core/status.h"
#include "identity/openssl.h"

namespace macaw::identity {
namespace {

bool IsP256(const EVP_PKEY* key) {
  char group[32] = "";
  return EVP_PKEY_is_a(key, "EC") == 1 &&
         EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) == 1 &&
         absl::string_view(group) == SN_X9_62_prime256v1;
}

}  // namespace

absl::StatusOr<PrivateKey> PrivateKey::Generate() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslError("make a key");
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

absl::StatusOr<PrivateKey> PrivateKey::FromPem(absl::string_view pem) {
  KeyPtr key(PEM_read_bio_PrivateKey(Reading(pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr) return OpenSslError("read the private key");
  if (!IsP256(key.get()))
    return absl::InvalidArgumentError("the private key is not one of the curve P-256");
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

std::string PrivateKey::Pem() const {
  const BioPtr bio = Writing();
  PEM_write_bio_PrivateKey(bio.get(), get(), nullptr, nullptr, 0, nullptr, nullptr);
  return Written(bio);
}

absl::StatusOr<std::string> MakeRequest(const PrivateKey& key) {
  const RequestPtr request(X509_REQ_new());
  const BioPtr bio = Writing();
  if (request == nullptr || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return OpenSslError("make a signing request");
  }
  return Written(bio);
}

}  // namespace macaw::identity
