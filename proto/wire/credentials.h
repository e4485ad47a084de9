#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "identity/invite.h"
#include "identity/node_files.h"
#include "proto/wire/address.h"

// The one place that decides how a connection is protected.
//  Unix socket    plain: the permissions of folder and socket say who may connect
//  TCP            TLS 1.3 with certificates from both sides, where this end has an identity
//  TCP loopback   plain without one
//  anything else  refused without one
// (LocalCredentials(UDS) would allow gRPC call credentials on a Unix socket. Nothing uses them, and
// a plain connection is faster.)
namespace macaw::wire {

// Whether a server at `address` that has an authority serves TLS there.
bool UsesTls(const Address& address);
// An error that says how to get certificates, unless `address` may be used without TLS.
absl::Status CheckMayBePlain(const Address& address);

// `files`: what the server shows; absent: plain. A change of the files is seen within a second.
// Callers need not show a certificate, and it is not checked here (gate.h).
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const Address& address, const std::optional<identity::IdentityFiles>& files);

// Shows the certificate that is in the files now, good or ended: the server judges it by its own
// clock. Connects to a server of their authority only. Absent: plain.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const Address& address, const std::optional<identity::IdentityFiles>& files);

// Where the authority of a server that was connected to with an invite is found. Thread-safe.
class FoundAuthority {
 public:
  void Set(const std::string& pem) {
    absl::MutexLock lock(&mutex_);
    pem_ = pem;
  }
  std::string pem() const {  // "" before there was a connection
    absl::MutexLock lock(&mutex_);
    return pem_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string pem_ ABSL_GUARDED_BY(mutex_);
};

// Shows nothing, and connects to a server only if its authority is the one that `invite` pins.
std::shared_ptr<grpc::ChannelCredentials> CredentialsToEnrol(const identity::Invite& invite,
                                                             std::shared_ptr<FoundAuthority> found);

}  // namespace macaw::wire
