#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/wire/connection_guard.h"
#include "proto/wire/listener.h"

namespace macaw::wire {

// A gRPC server at an address: its connections come from a Listener. One thread.
class Endpoint {
 public:
  Endpoint() = default;
  ~Endpoint() { Close(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Builds the server from ServerSettings and `builder`, and serves the connections of `listener`.
  // `guard` decides which connections are taken; it may be null, and must outlive this. Call once.
  absl::Status Serve(std::unique_ptr<Listener> listener,
                     const std::shared_ptr<grpc::ServerCredentials>& credentials,
                     grpc::ServerBuilder& builder, ConnectionGuard* guard);
  // Accepts no more connections, ends every open call, and returns when all are over. There is no
  // grace period: waiting polls would outlast it (answers.h is about those that were answered). A
  // second call does nothing.
  void Close();

  const std::string& address() const { return address_; }  // to dial, with the real port

 private:
  std::string address_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;  // destroyed first
};

}  // namespace macaw::wire
