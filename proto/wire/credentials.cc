#include "proto/wire/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <stdlib.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "identity/verify.h"

namespace macaw::wire {
namespace {

using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;
using identity::Certificate;

constexpr unsigned int kWatchSeconds = 1;

// What is set once, before the first use of gRPC, also that without TLS: it reads GRPC_VERBOSITY
// when it begins.
//  - This gRPC has no setting for the lowest version of TLS. The list of ciphers that it takes from
//    the environment is for TLS 1.2 alone: with one that no certificate here fits, only TLS 1.3 is
//    left.
//  - It writes lines on standard error for every connection that names a host which is not in the
//    server's certificate, and for every handshake that is broken off. The reason is in the status,
//    too; GRPC_VERBOSITY brings the lines back.
void PrepareGrpc() {
  static absl::once_flag once;
  absl::call_once(once, [] {
    ::setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", 1);
    ::setenv("GRPC_VERBOSITY", "NONE", 0);
  });
}

// Checks the server's certificate with `check`, which gets the leaf and the whole chain (PEM).
class ServerCheck final : public ExternalCertificateVerifier {
 public:
  using Check = std::function<absl::Status(const std::string& leaf, const std::string& chain)>;
  explicit ServerCheck(Check check) : check_(std::move(check)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* result) override {
    const auto text = [](grpc::string_ref ref) { return std::string(ref.data(), ref.size()); };
    const absl::Status status =
        check_(text(request->peer_cert()), text(request->peer_cert_full_chain()));
    *result = status.ok()
                  ? grpc::Status::OK
                  : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(status.message()));
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const Check check_;
};

void UseCheck(grpc::experimental::TlsChannelCredentialsOptions& options, ServerCheck::Check check) {
  // The library proves that the server has the key of its certificate. All else is checked by us,
  // so that a refusal has a reason in words and no host name is needed.
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<ServerCheck>(std::move(check)));
}

// The certificate in `chain` that the invite pins.
absl::StatusOr<Certificate> FindPinned(const identity::Invite& invite, absl::string_view chain) {
  constexpr absl::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  for (size_t at = chain.find(kBegin); at != absl::string_view::npos;
       at = chain.find(kBegin, at + 1)) {
    const auto certificate = Certificate::FromPem(chain.substr(at));
    if (certificate.ok() && invite.Pins(*certificate)) return *certificate;
  }
  return absl::UnauthenticatedError(
      "the server is not of the fleet that the invite is for: check the address and the invite");
}

}  // namespace

bool UsesTls(const Address& address) { return !address.is_unix; }

absl::Status CheckMayBePlain(const Address& address) {
  if (address.is_unix || address.IsLoopback()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      address.Text(),
      " is not a loopback address, and connections between machines need certificates: a server "
      "gets its own with `macaw pki init` (server.authority), a worker with `macaw-worker enrol` "
      "(node.identity). Without them use unix:/path, 127.0.0.1 or localhost"));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const Address& address, const std::optional<identity::IdentityFiles>& files) {
  PrepareGrpc();
  if (!files.has_value() || !UsesTls(address)) {
    MACAW_RETURN_IF_ERROR(CheckMayBePlain(address));
    return grpc::InsecureServerCredentials();
  }
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(files->key, files->certificate,
                                                       kWatchSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const Address& address, const std::optional<identity::IdentityFiles>& files) {
  PrepareGrpc();
  if (!files.has_value() || !UsesTls(address)) {
    MACAW_RETURN_IF_ERROR(CheckMayBePlain(address));
    return grpc::InsecureChannelCredentials();
  }
  MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(*files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          std::vector<grpc::experimental::IdentityKeyCertPair>{
              {own.key.Pem(), own.certificate.Pem()}}));
  options.watch_identity_key_cert_pairs();
  UseCheck(options, [authority = own.authority](const std::string& leaf, const std::string&) {
    const auto certificate = Certificate::FromPem(leaf);
    if (!certificate.ok()) return certificate.status();
    return identity::Verify(*certificate, authority, identity::Side::kServer, absl::Now());
  });
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsToEnrol(
    const identity::Invite& invite, std::shared_ptr<FoundAuthority> found) {
  PrepareGrpc();
  grpc::experimental::TlsChannelCredentialsOptions options;
  UseCheck(options,
           [invite, found = std::move(found)](const std::string& leaf,
                                              const std::string& chain) -> absl::Status {
             MACAW_ASSIGN_OR_RETURN(const Certificate authority, FindPinned(invite, chain));
             MACAW_ASSIGN_OR_RETURN(const Certificate server, Certificate::FromPem(leaf));
             MACAW_RETURN_IF_ERROR(
                 identity::Verify(server, authority, identity::Side::kServer, absl::Now()));
             found->Set(authority.Pem());
             return absl::OkStatus();
           });
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace macaw::wire
