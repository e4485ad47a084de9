#include "identity/verify.h"

#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "identity/openssl.h"

namespace macaw::identity {
namespace {

std::string Words(absl::Duration duration) {
  if (duration >= absl::Hours(48)) {
    return absl::StrCat(duration / absl::Hours(24), " days");
  }
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

std::string Words(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

std::string Whose(const Certificate& certificate) {
  const Subject& subject = certificate.subject();
  return absl::StrCat("the certificate of ", Name(subject.role), " \"", subject.name, "\"");
}

}  // namespace

absl::Status VerifySignature(const Certificate& certificate, const Certificate& authority,
                             Side side) {
  const std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX_free>> context(
      X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr ||
      X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr) != 1) {
    return OpenSslError("check a certificate");
  }
  // The times are checked by CheckTime, with words.
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_X509_STRICT);
  const bool server = side == Side::kServer;
  X509_STORE_CTX_set_purpose(context.get(),
                             server ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    return absl::UnauthenticatedError(
        absl::StrCat(Whose(certificate), " is not from the authority \"", authority.subject().name,
                     "\" of this fleet: ", X509_verify_cert_error_string(error)));
  }
  const Role role = certificate.subject().role;
  if (role == Role::kAuthority || (role == Role::kServer) != server) {
    return absl::UnauthenticatedError(
        absl::StrCat(Whose(certificate), server ? " is not one of a server" : " is for no client"));
  }
  return absl::OkStatus();
}

absl::Status Verify(const Certificate& certificate, const Certificate& authority, Side side,
                    absl::Time now) {
  MACAW_RETURN_IF_ERROR(VerifySignature(certificate, authority, side));
  return CheckTime(certificate, now);
}

absl::Status CheckTime(const Certificate& certificate, absl::Time now) {
  const Validity& validity = certificate.validity();
  if (now < validity.from) {
    return absl::UnauthenticatedError(absl::StrCat(
        Whose(certificate), " is valid from ", Words(validity.from), ", and the clock here says ",
        Words(now), ": the clock is off by ", Words(validity.from - now), " or more"));
  }
  if (now >= validity.until) {
    return absl::UnauthenticatedError(absl::StrCat(
        Whose(certificate), " was valid until ", Words(validity.until),
        ", and the clock here says ", Words(now), ": renew it, or set the clock if it is off by ",
        Words(now - validity.until), " or more"));
  }
  return absl::OkStatus();
}

}  // namespace macaw::identity
