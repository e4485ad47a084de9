#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/token_bucket.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "proto/fleet/caller.h"
#include "proto/wire/connection_guard.h"
#include "proto/wire/remote.h"

namespace macaw::wire {

// Who makes the calls of a connection over TLS, by its certificate, and how many calls and
// connections that caller may have. Thread-safe.
class Gate {
 public:
  // Both must outlive the gate; `audit` may be null.
  Gate(identity::Authority& authority, identity::Audit* audit, const GuardLimits& limits = {},
       const Allowance& calls_of_name = kCallsOfName);

  // The caller of a connection, or why its certificate (or the lack of one) is not believed. Asked
  // at each call: a certificate may be revoked, or run out, while the connection lives.
  absl::StatusOr<fleet::CallerPtr> Identify(const grpc::AuthContext& connection);
  // The same, and counts the call. kResourceExhausted when the caller makes too many: HTTP/2 lets
  // it begin and abandon calls faster than anybody could answer them. Its connections are cut then.
  absl::StatusOr<fleet::CallerPtr> Admit(const grpc::AuthContext& connection);

  // The same for a call that renews the certificate, which may have ended
  // (Authority::CheckMayRenew).
  absl::Status AdmitToRenew(const grpc::AuthContext& connection);

  // Enters a refused call in the audit log. `from` may have a port, or be gRPC's name of a peer.
  void Refused(identity::Refusal refusal) const;

  identity::Authority& authority() const { return authority_; }
  ConnectionGuard& guard() { return guard_; }

 private:
  struct Known {
    std::shared_ptr<const identity::Grant> grant;
    fleet::CallerPtr caller;
    TokenBucket calls;
  };

  absl::StatusOr<Known*> Find(const grpc::AuthContext& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the connections of certificates that are no longer good.
  void CutRevoked();

  identity::Authority& authority_;
  identity::Audit* const audit_;
  const Allowance calls_of_name_;
  absl::Mutex mutex_;
  // A caller for each grant, made once: an owner may have a million names.
  absl::flat_hash_map<std::string, std::unique_ptr<Known>> callers_ ABSL_GUARDED_BY(mutex_);
  // Of the guard's thread.
  uint64_t changes_ = 0;  // of the registry, when the certificates were last looked at
  TimePoint looked_{};
  ConnectionGuard guard_;  // destroyed first
};

// The only call that needs no certificate.
inline constexpr absl::string_view kEnrolMethod = "/macaw.v1.Enrolment/Enrol";

inline constexpr absl::string_view kRenewMethod = "/macaw.v1.Enrolment/Renew";

// The certificate that the other end of a connection has shown (PEM), or "".
std::string CertificateOf(const grpc::AuthContext& connection);
// The name in it, believed or not; for logs.
std::string NameIn(const grpc::AuthContext& connection);

// Refuses a call before its first byte is read, unless the caller is known or the call is Enrol.
std::shared_ptr<grpc::AuthMetadataProcessor> RefuseStrangers(std::shared_ptr<Gate> gate);
// Refuses it unless the caller is an operator.
std::shared_ptr<grpc::AuthMetadataProcessor> RefuseAllButOperators(std::shared_ptr<Gate> gate);

}  // namespace macaw::wire
