#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "proto/wire/address.h"

// The one place that decides how a connection is protected.
//  Unix socket    insecure: the permissions of folder and socket say who may connect
//  TCP loopback   insecure
//  anything else  refused, until TLS comes with deployment
// (LocalCredentials(UDS) would allow gRPC call credentials on a Unix socket. Nothing uses them, and
// a plain connection is faster.)
namespace macaw::wire {

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const Address& address);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const Address& address);

}  // namespace macaw::wire
