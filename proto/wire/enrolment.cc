#include "proto/wire/enrolment.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "absl/time/clock.h"
#include "core/files.h"
#include "core/status.h"
#include "identity/invite.h"
#include "identity/verify.h"
#include "proto/wire/address.h"
#include "proto/wire/channel_settings.h"
#include "proto/wire/credentials.h"
#include "proto/wire/proxy.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"

namespace macaw::wire {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;
using identity::Certificate;

constexpr std::chrono::seconds kCallTimeout(20);

// Ends the call with a certificate. `reactor` may be gone afterwards.
void Answer(grpc::ServerUnaryReactor* reactor, v1::EnrolReply* reply,
            const absl::StatusOr<Certificate>& certificate) {
  if (certificate.ok()) reply->set_certificate(certificate->Pem());
  reactor->Finish(ToGrpc(certificate.status()));
}

class Reactor final : public grpc::ServerUnaryReactor {
  void OnDone() override { delete this; }
};

class CallWatch final : public grpc::experimental::Interceptor {
 public:
  CallWatch(Gate& gate, ServerRpcInfo* call) : gate_(gate), call_(call) {}

  void Intercept(InterceptorBatchMethods* batch) override {
    if (!std::exchange(seen_, true)) TellGuard();
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = batch->GetSendStatus();
      const grpc::ServerContextBase& context = *call_->server_context();
      if (IsRefusal(status.error_code())) {
        gate_.Refused({.standing = StandingFor(status.error_code()),
                       .who = NameIn(*context.auth_context()),
                       .from = context.peer(),
                       .call = call_->method(),
                       .why = status.error_message()});
      }
    }
    batch->Proceed();
  }

 private:
  // What a caller that keeps to the protocol is never told.
  static bool IsRefusal(grpc::StatusCode code) {
    return code == grpc::StatusCode::UNAUTHENTICATED ||
           code == grpc::StatusCode::PERMISSION_DENIED ||
           code == grpc::StatusCode::INVALID_ARGUMENT ||
           code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
           code == grpc::StatusCode::FAILED_PRECONDITION;
  }

  // The gate has let the call in: its caller's name is proven, unless it enrols.
  identity::Standing StandingFor(grpc::StatusCode code) const {
    if (call_->method() == kEnrolMethod) return identity::Standing::kStranger;
    return code == grpc::StatusCode::PERMISSION_DENIED ? identity::Standing::kBanned
                                                       : identity::Standing::kKnown;
  }

  void TellGuard() {
    const grpc::ServerContextBase& context = *call_->server_context();
    if (call_->method() == kEnrolMethod) return gate_.guard().Enrols(context.peer());
    gate_.guard().Identified(context.peer(), NameIn(*context.auth_context()),
                             [&] { return CertificateOf(*context.auth_context()); });
  }

  Gate& gate_;
  ServerRpcInfo* const call_;
  bool seen_ = false;
};

class WatchFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit WatchFactory(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    return new CallWatch(*gate_, call);
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

std::shared_ptr<grpc::Channel> ChannelTo(
    const Address& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  for (const auto& [key, value] : ClientSettings(address)) arguments.SetInt(key, value);
  return grpc::CreateCustomChannel(address.Target(), credentials, arguments);
}

template <typename Request>
absl::StatusOr<Certificate> Ask(const Address& address,
                                const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                const Request& request,
                                grpc::Status (v1::Enrolment::Stub::*method)(grpc::ClientContext*,
                                                                            const Request&,
                                                                            v1::EnrolReply*)) {
  v1::Enrolment::Stub stub(ChannelTo(address, credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  v1::EnrolReply reply;
  MACAW_RETURN_IF_ERROR(
      NameProxy(FromGrpc((stub.*method)(&context, request, &reply)), ProxyTo(address)));
  return Certificate::FromPem(reply.certificate());
}

absl::StatusOr<Address> AddressOverTls(const std::string& server) {
  MACAW_ASSIGN_OR_RETURN(Address address, ParseAddress(server));
  if (UsesTls(address)) return address;
  return absl::InvalidArgumentError(
      absl::StrCat(server, " needs no certificate: it is a socket of this machine"));
}

}  // namespace

grpc::ServerUnaryReactor* EnrolmentService::Enrol(grpc::CallbackServerContext*,
                                                  const v1::EnrolRequest* request,
                                                  v1::EnrolReply* reply) {
  auto* reactor = new Reactor;
  identity::Invite invite;
  if (request->secret().size() != invite.secret.size()) {
    reactor->Finish(ToGrpc(Malformed("secret", "does not have 16 bytes")));
    return reactor;
  }
  std::ranges::copy(request->secret(), invite.secret.begin());
  executor_.Post([gate = gate_.get(), invite, reactor, reply, text = request->request()] {
    Answer(reactor, reply, gate->authority().Enrol(invite, text, absl::Now()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* EnrolmentService::Renew(grpc::CallbackServerContext* context,
                                                  const v1::RenewRequest* request,
                                                  v1::EnrolReply* reply) {
  auto* reactor = new Reactor;
  executor_.Post([gate = gate_.get(), shown = CertificateOf(*context->auth_context()), reactor,
                  reply, text = request->request()] {
    const auto renew = [&]() -> absl::StatusOr<Certificate> {
      // The gate has let the call in; the certificate may have been revoked since.
      MACAW_RETURN_IF_ERROR(gate->authority().CheckMayRenew(shown, absl::Now()));
      MACAW_ASSIGN_OR_RETURN(const Certificate current, Certificate::FromPem(shown));
      return gate->authority().Renew(current, text, absl::Now());
    };
    Answer(reactor, reply, renew());
  });
  return reactor;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> WatchCalls(
    std::shared_ptr<Gate> gate) {
  return std::make_unique<WatchFactory>(std::move(gate));
}

absl::Status Enrol(const std::string& server, const identity::Invite& invite,
                   const identity::IdentityFiles& files) {
  MACAW_ASSIGN_OR_RETURN(const Address address, AddressOverTls(server));
  MACAW_ASSIGN_OR_RETURN(const identity::PrivateKey key, identity::ReadOrMakeKey(files.key));
  v1::EnrolRequest request;
  request.set_secret(invite.secret.data(), invite.secret.size());
  MACAW_ASSIGN_OR_RETURN(*request.mutable_request(), identity::MakeRequest(key));
  const auto found = std::make_shared<FoundAuthority>();
  MACAW_ASSIGN_OR_RETURN(
      const Certificate certificate,
      Ask(address, CredentialsToEnrol(invite, found), request, &v1::Enrolment::Stub::Enrol));
  MACAW_ASSIGN_OR_RETURN(const Certificate authority, Certificate::FromPem(found->pem()));
  if (!certificate.IsOf(key))
    return absl::DataLossError("the server's answer is a certificate for another key");
  MACAW_RETURN_IF_ERROR(
      identity::Verify(certificate, authority, identity::Side::kClient, absl::Now()));
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(files.authority, authority.Pem()));
  return AtomicWriteFile(files.certificate, certificate.Pem());
}

absl::Status RenewCertificate(const std::string& server, const identity::IdentityFiles& files) {
  MACAW_ASSIGN_OR_RETURN(const Address address, AddressOverTls(server));
  MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(files));
  MACAW_ASSIGN_OR_RETURN(const auto credentials, ChannelCredentialsFor(address, files));
  v1::RenewRequest request;
  MACAW_ASSIGN_OR_RETURN(*request.mutable_request(), identity::MakeRequest(own.key));
  MACAW_ASSIGN_OR_RETURN(const Certificate certificate,
                         Ask(address, credentials, request, &v1::Enrolment::Stub::Renew));
  if (!certificate.IsOf(own.key))
    return absl::DataLossError("the server's answer is a certificate for another key");
  MACAW_RETURN_IF_ERROR(
      identity::Verify(certificate, own.authority, identity::Side::kClient, absl::Now()));
  return AtomicWriteFile(files.certificate, certificate.Pem());
}

}  // namespace macaw::wire
