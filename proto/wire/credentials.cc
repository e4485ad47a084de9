#include "proto/wire/credentials.h"

#include "core/status.h"

namespace macaw::wire {
namespace {

absl::Status CheckMayBePlain(const Address& address) {
  if (address.IsLoopback()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      address.Text(),
      " is not a loopback address, and connections between machines need TLS, which this "
      "version does not have: use unix:/path, 127.0.0.1 or localhost"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const Address& address) {
  MACAW_RETURN_IF_ERROR(CheckMayBePlain(address));
  return grpc::InsecureServerCredentials();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const Address& address) {
  MACAW_RETURN_IF_ERROR(CheckMayBePlain(address));
  return grpc::InsecureChannelCredentials();
}

}  // namespace macaw::wire
