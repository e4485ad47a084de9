#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "core/fd.h"
#include "core/status.h"
#include "proto/wire/address.h"
#include "proto/wire/channel_settings.h"
#include "proto/wire/credentials.h"
#include "proto/wire/listener.h"
#include "proto/wire/remote.h"
#include "proto/wire/service.h"

namespace macaw::wire {
namespace {

class GrpcFleetServer final : public FleetServer {
 public:
  GrpcFleetServer(const ServerOptions& options, fleet::FleetHandler& handler)
      : state_(std::make_shared<ServiceState>(options, handler)), service_(state_) {}

  ~GrpcFleetServer() override {
    listener_.reset();  // no new connections from here on
    if (server_ == nullptr) return;
    // No grace period: waiting polls would outlast it. The cancellation ends every open call
    // (UnaryCall::OnCancel). The handler already has the contents of a commit, or the worker will
    // send it again.
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    state_->executor.WaitIdle();  // after this nothing calls the handler
  }

  absl::Status Listen(Address address) {
    MACAW_ASSIGN_OR_RETURN(auto credentials, ServerCredentialsFor(address));
    MACAW_RETURN_IF_ERROR(PrepareListen(address));
    grpc::ServerBuilder builder;
    for (const auto& [key, value] : ServerSettings()) builder.AddChannelArgument(key, value);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError(
          absl::StrCat("cannot listen on ", address.Text(), ": gRPC gave no reason"));
    }
    MACAW_ASSIGN_OR_RETURN(listener_, Listener::Bind(address, ReservedDescriptors()));
    listener_->Start([acceptor = acceptor_.get()](int listening, Fd connection) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
      parameters.listener_fd = listening;
      parameters.fd = connection.Release();  // gRPC closes it
      acceptor->HandleNewConnection(&parameters);
    });
    address_ = address.Text();
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  const std::shared_ptr<ServiceState> state_;
  FleetService service_;
  std::string address_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;  // destroyed first
};

}  // namespace

absl::StatusOr<std::unique_ptr<FleetServer>> FleetServer::Start(const ServerOptions& options,
                                                                fleet::FleetHandler& handler) {
  if (options.max_inline_bytes > kMaxInlineBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_inline_bytes ", options.max_inline_bytes,
                                                   " does not fit a message; at most ",
                                                   kMaxInlineBytes));
  }
  MACAW_ASSIGN_OR_RETURN(Address address, ParseAddress(options.listen));
  auto server = std::make_unique<GrpcFleetServer>(options, handler);
  MACAW_RETURN_IF_ERROR(server->Listen(std::move(address)));
  return server;
}

}  // namespace macaw::wire
