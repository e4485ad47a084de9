#include "identity/certificate.h"

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "core/status.h"
#include "identity/openssl.h"

namespace macaw::identity {
namespace {

constexpr std::array<std::pair<Role, const char*>, 5> kRoles = {{
    {Role::kAuthority, "authority"},
    {Role::kServer, "server"},
    {Role::kDevice, "device"},
    {Role::kWorker, "worker"},
    {Role::kOperator, "operator"},
}};
constexpr size_t kMaxRequestBytes = 16 << 10;
constexpr size_t kSerialBytes = 16;

std::string EntryOf(const X509_NAME* name, int nid) {
  const int at = X509_NAME_get_index_by_NID(name, nid, -1);
  if (at < 0) return "";
  const ASN1_STRING* const text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

bool AddEntry(X509_NAME* name, int nid, absl::string_view text) {
  return X509_NAME_add_entry_by_NID(name, nid, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

bool AddExtension(X509* certificate, const X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, const_cast<X509*>(issuer), certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool AddExtensions(X509* certificate, const X509* issuer, Role role) {
  if (role == Role::kAuthority) {
    return AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           AddExtension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           AddExtension(certificate, issuer, NID_subject_key_identifier, "hash");
  }
  return AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
         AddExtension(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
         AddExtension(certificate, issuer, NID_ext_key_usage,
                      role == Role::kServer ? "serverAuth" : "clientAuth") &&
         AddExtension(certificate, issuer, NID_subject_key_identifier, "hash") &&
         AddExtension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
}

bool SetTime(ASN1_TIME* at, absl::Time time) {
  return ASN1_TIME_set(at, absl::ToTimeT(time)) != nullptr;
}

absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* at) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(at, &parts) != 1) return OpenSslError("read the times of a certificate");
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// A random number that no other certificate has. The first bit is 0 and the second 1: numbers of
// one length.
bool SetSerial(X509* certificate) {
  std::array<unsigned char, kSerialBytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7F) | 0x40);
  const std::unique_ptr<BIGNUM, FreeWith<BN_free>> number(
      BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

// `issuer`: null for a certificate that signs itself.
absl::StatusOr<Certificate> Sign(EVP_PKEY* key, const Subject& subject, const Validity& validity,
                                 EVP_PKEY* signing_key, X509* issuer) {
  const CertificatePtr made(X509_new());
  X509* const certificate = made.get();
  if (certificate == nullptr) return OpenSslError("make a certificate");
  X509* const signer = issuer != nullptr ? issuer : certificate;
  X509_NAME* const name = X509_get_subject_name(certificate);
  const bool ok = X509_set_version(certificate, X509_VERSION_3) == 1 && SetSerial(certificate) &&
                  SetTime(X509_getm_notBefore(certificate), validity.from) &&
                  SetTime(X509_getm_notAfter(certificate), validity.until) &&
                  AddEntry(name, NID_organizationName, "macaw") &&
                  AddEntry(name, NID_organizationalUnitName, Name(subject.role)) &&
                  AddEntry(name, NID_commonName, subject.name) &&
                  X509_set_issuer_name(certificate, X509_get_subject_name(signer)) == 1 &&
                  X509_set_pubkey(certificate, key) == 1 &&
                  AddExtensions(certificate, signer, subject.role) &&
                  X509_sign(certificate, signing_key, EVP_sha256()) != 0;
  const BioPtr bio = Writing();
  if (!ok || PEM_write_bio_X509(bio.get(), certificate) != 1)
    return OpenSslError("sign a certificate");
  return Certificate::FromPem(Written(bio));
}

// Of what OpenSSL encoded; `size` < 0: it could not.
Digest DigestAndFree(unsigned char* bytes, int size) {
  const Digest digest =
      DigestOf(std::as_bytes(std::span(bytes, static_cast<size_t>(std::max(size, 0)))));
  OPENSSL_free(bytes);
  return digest;
}

}  // namespace

absl::string_view Name(Role role) {
  return std::ranges::find(kRoles, role, &std::pair<Role, const char*>::first)->second;
}

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  for (const auto& [role, text] : kRoles) {
    if (name == text) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(name), "\" is no role: device, worker, operator or server"));
}

absl::Status CheckName(absl::string_view name) {
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  };
  if (!name.empty() && name.size() <= 64 && std::ranges::all_of(name, allowed) && name[0] != '.' &&
      name[0] != '-') {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(name.substr(0, 80)),
      "\" is no name for a node: use 1 to 64 letters, digits, dots, dashes and underscores"));
}

absl::StatusOr<Certificate> Certificate::FromPem(absl::string_view pem) {
  CertificatePtr read(PEM_read_bio_X509(Reading(pem).get(), nullptr, nullptr, nullptr));
  if (read == nullptr) return OpenSslError("read the certificate");
  Certificate certificate;
  const X509_NAME* const name = X509_get_subject_name(read.get());
  certificate.subject_.name = EntryOf(name, NID_commonName);
  MACAW_ASSIGN_OR_RETURN(certificate.subject_.role,
                         ParseRole(EntryOf(name, NID_organizationalUnitName)));
  MACAW_RETURN_IF_ERROR(CheckName(certificate.subject_.name));
  MACAW_ASSIGN_OR_RETURN(certificate.validity_.from, TimeOf(X509_get0_notBefore(read.get())));
  MACAW_ASSIGN_OR_RETURN(certificate.validity_.until, TimeOf(X509_get0_notAfter(read.get())));
  const ASN1_INTEGER* const serial = X509_get0_serialNumber(read.get());
  certificate.serial_ = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                        static_cast<size_t>(ASN1_STRING_length(serial))));
  certificate.certificate_ = std::move(read);
  return certificate;
}

std::string Certificate::Pem() const {
  const BioPtr bio = Writing();
  PEM_write_bio_X509(bio.get(), get());
  return Written(bio);
}

Digest Certificate::Fingerprint() const {
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(get(), &bytes);
  return DigestAndFree(bytes, size);
}

Digest Certificate::KeyDigest() const {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(X509_get0_pubkey(get()), &bytes);
  return DigestAndFree(bytes, size);
}

bool Certificate::IsOf(const PrivateKey& key) const {
  return EVP_PKEY_eq(X509_get0_pubkey(get()), key.get()) == 1;
}

absl::StatusOr<Certificate> MakeAuthorityCertificate(const PrivateKey& key, const std::string& name,
                                                     const Validity& validity) {
  MACAW_RETURN_IF_ERROR(CheckName(name));
  return Sign(key.get(), {name, Role::kAuthority}, validity, key.get(), nullptr);
}

absl::StatusOr<Certificate> Issue(const Issuer& issuer, absl::string_view request,
                                  const Subject& subject, const Validity& validity) {
  MACAW_RETURN_IF_ERROR(CheckName(subject.name));
  if (request.size() > kMaxRequestBytes)
    return absl::InvalidArgumentError("the signing request is larger than 16 kB");
  const RequestPtr read(PEM_read_bio_X509_REQ(Reading(request).get(), nullptr, nullptr, nullptr));
  if (read == nullptr) return OpenSslError("read the signing request");
  EVP_PKEY* const key = X509_REQ_get0_pubkey(read.get());
  char group[32] = "";
  if (key == nullptr || EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) != 1 ||
      absl::string_view(group) != SN_X9_62_prime256v1) {
    return absl::InvalidArgumentError("the signing request has no key of the curve P-256");
  }
  if (X509_REQ_verify(read.get(), key) != 1)
    return OpenSslError("check the signature of the signing request");
  return Sign(key, subject, validity, issuer.key.get(), issuer.certificate.get());
}

}  // namespace macaw::identity
