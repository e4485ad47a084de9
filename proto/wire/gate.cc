#include "proto/wire/gate.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

// How often certificates that run out are looked for.
constexpr Duration kLookEvery = std::chrono::minutes(1);

std::string PropertyOf(const grpc::AuthContext& connection, const char* name) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

// "127.0.0.1" of "ipv4:127.0.0.1:5", "127.0.0.1:5" or "127.0.0.1"; "::1" of "ipv6:%5B::1%5D:5".
std::string AddressIn(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv6:")) {
    absl::ConsumePrefix(&peer, "ipv4:");
    if (std::ranges::count(peer, ':') == 1) peer = peer.substr(0, peer.find(':'));
    return std::string(peer);
  }
  std::string address = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  const size_t end = address.find(']');
  return end == std::string::npos ? address : address.substr(1, end - 1);
}

fleet::CallerPtr CallerWith(const identity::Grant& grant) {
  fleet::Caller caller{.node = grant.subject.name};
  switch (grant.subject.role) {
    case identity::Role::kDevice:
      caller.role = fleet::Role::kDevice;
      break;
    case identity::Role::kWorker:
      caller.role = fleet::Role::kNode;
      break;
    case identity::Role::kOperator:
      caller.role = fleet::Role::kOperator;
      break;
    case identity::Role::kServer:
    case identity::Role::kAuthority:
      caller.role = fleet::Role::kStranger;
      break;
  }
  caller.owns_any = grant.owns_any;
  if (!grant.owns_any) caller.owns = grant.owns;
  return std::make_shared<const fleet::Caller>(std::move(caller));
}

enum class Admitted : uint8_t { kWholeFleet, kOperators };

class CallerCheck final : public grpc::AuthMetadataProcessor {
 public:
  CallerCheck(std::shared_ptr<Gate> gate, Admitted admitted)
      : gate_(std::move(gate)), admitted_(admitted) {}
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata*, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const absl::string_view call =
        path != metadata.end() ? absl::string_view(path->second.data(), path->second.size()) : "";
    if (call == kEnrolMethod && admitted_ == Admitted::kWholeFleet) return grpc::Status::OK;
    absl::StatusOr<fleet::CallerPtr> caller = gate_->Admit(*connection);
    if (absl::IsUnauthenticated(caller.status()) && call == kRenewMethod &&
        admitted_ == Admitted::kWholeFleet) {
      const absl::Status renews = gate_->AdmitToRenew(*connection);
      if (renews.ok()) return grpc::Status::OK;
      caller = renews;
    }
    if (!caller.ok()) {
      const identity::Standing standing = absl::IsResourceExhausted(caller.status())
                                              ? identity::Standing::kKnown
                                              : identity::StandingOf(caller.status());
      return Refuse(*connection, call, standing, caller.status());
    }
    if (admitted_ == Admitted::kOperators && (*caller)->role != fleet::Role::kOperator) {
      return Refuse(
          *connection, call, identity::Standing::kBanned,
          absl::PermissionDeniedError(absl::StrCat(
              "\"", (*caller)->node, "\" is no operator (macaw pki invite NAME --role operator)")));
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status Refuse(const grpc::AuthContext& connection, absl::string_view call,
                      identity::Standing standing, const absl::Status& why) const {
    // What is the server's own trouble is no refusal.
    if (!absl::IsUnavailable(why)) {
      gate_->Refused({.standing = standing,
                      .who = NameIn(connection),
                      .from = PropertyOf(connection, "peer"),
                      .call = std::string(call),
                      .why = std::string(why.message())});
    }
    return ToGrpc(why);
  }

  const std::shared_ptr<Gate> gate_;
  const Admitted admitted_;
};

}  // namespace

std::string CertificateOf(const grpc::AuthContext& connection) {
  return PropertyOf(connection, GRPC_X509_PEM_CERT_PROPERTY_NAME);
}

std::string NameIn(const grpc::AuthContext& connection) {
  return PropertyOf(connection, GRPC_X509_CN_PROPERTY_NAME);
}

Gate::Gate(identity::Authority& authority, identity::Audit* audit, const GuardLimits& limits,
           const Allowance& calls_of_name)
    : authority_(authority),
      audit_(audit),
      calls_of_name_(calls_of_name),
      guard_(
          limits,
          [this](absl::string_view address, absl::string_view why) {
            Refused({.from = std::string(address), .why = std::string(why)});
          },
          [this] { CutRevoked(); }) {}

absl::StatusOr<Gate::Known*> Gate::Find(const grpc::AuthContext& connection) {
  const std::string certificate = CertificateOf(connection);
  if (certificate.empty()) {
    return absl::UnauthenticatedError(
        "the caller has shown no certificate: enrol the node first (macaw-worker enrol)");
  }
  absl::StatusOr<std::shared_ptr<const identity::Grant>> grant =
      authority_.Identify(certificate, absl::Now());
  if (absl::IsUnauthenticated(grant.status())) return grant.status();
  if (!grant.ok()) {  // the authority's own trouble
    return absl::UnavailableError(
        absl::StrCat("the server cannot look the caller up now: ", grant.status().message()));
  }
  std::unique_ptr<Known>& known = callers_[(*grant)->subject.name];
  if (known == nullptr) known = std::make_unique<Known>();
  if (known->grant != *grant) {
    known->grant = *std::move(grant);
    known->caller = CallerWith(*known->grant);
  }
  return known.get();
}

absl::StatusOr<fleet::CallerPtr> Gate::Identify(const grpc::AuthContext& connection) {
  absl::MutexLock lock(&mutex_);
  MACAW_ASSIGN_OR_RETURN(const Known* const known, Find(connection));
  return known->caller;
}

absl::StatusOr<fleet::CallerPtr> Gate::Admit(const grpc::AuthContext& connection) {
  fleet::CallerPtr caller;
  {
    absl::MutexLock lock(&mutex_);
    MACAW_ASSIGN_OR_RETURN(Known* const known, Find(connection));
    if (known->calls.Take(calls_of_name_, SteadyClock().Now())) return known->caller;
    caller = known->caller;
  }
  const std::string why =
      absl::StrCat("\"", caller->node, "\" makes more than ",
                   std::chrono::seconds(1) / calls_of_name_.every, " calls a second");
  guard_.CutWhere([&](const std::string& name, const std::string&) {
    return name == caller->node ? why : std::string();
  });
  return absl::ResourceExhaustedError(why);
}

absl::Status Gate::AdmitToRenew(const grpc::AuthContext& connection) {
  return authority_.CheckMayRenew(CertificateOf(connection), absl::Now());
}

void Gate::CutRevoked() {
  const uint64_t changes = authority_.Changes();
  const TimePoint now = SteadyClock().Now();
  if (changes == changes_ && now - looked_ < kLookEvery) return;
  changes_ = changes;
  looked_ = now;
  guard_.CutWhere([this](const std::string&, const std::string& certificate) -> std::string {
    const auto grant = authority_.Identify(certificate, absl::Now());
    return absl::IsUnauthenticated(grant.status()) ? std::string(grant.status().message()) : "";
  });
}

void Gate::Refused(identity::Refusal refusal) const {
  if (audit_ == nullptr) return;
  refusal.from = AddressIn(refusal.from);
  audit_->Refused(refusal, absl::Now());
}

std::shared_ptr<grpc::AuthMetadataProcessor> RefuseStrangers(std::shared_ptr<Gate> gate) {
  return std::make_shared<CallerCheck>(std::move(gate), Admitted::kWholeFleet);
}

std::shared_ptr<grpc::AuthMetadataProcessor> RefuseAllButOperators(std::shared_ptr<Gate> gate) {
  return std::make_shared<CallerCheck>(std::move(gate), Admitted::kOperators);
}

}  // namespace macaw::wire
