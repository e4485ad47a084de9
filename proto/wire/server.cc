#include <grpcpp/server_builder.h>

#include <chrono>
#include <optional>
#include <utility>

#include "core/status.h"
#include "proto/wire/address.h"
#include "proto/wire/credentials.h"
#include "proto/wire/endpoint.h"
#include "proto/wire/enrolment.h"
#include "proto/wire/gate.h"
#include "proto/wire/handshakes.h"
#include "proto/wire/limits.h"
#include "proto/wire/listener.h"
#include "proto/wire/remote.h"
#include "proto/wire/service.h"

namespace macaw::wire {
namespace {

// How long closing waits for answers that were given: 3,000 devices that hear that the run is over
// take two seconds. A connection that takes no bytes must not keep the server.
constexpr Duration kFarewell = std::chrono::seconds(10);

class GrpcFleetServer final : public FleetServer {
 public:
  // `gate`: null for a server without TLS.
  GrpcFleetServer(const ServerOptions& options, std::shared_ptr<Gate> gate,
                  std::unique_ptr<PartialFiles> partials, fleet::FleetHandler& handler)
      : gate_(std::move(gate)),
        state_(std::make_shared<ServiceState>(options, gate_, std::move(partials), handler)),
        service_(state_),
        enrolment_(gate_) {}

  ~GrpcFleetServer() override {
    state_->answers->AwaitAllLeft(kFarewell);
    // Ends every open call (UnaryCall::OnCancel). The handler already has the contents of a commit,
    // or the worker will send it again.
    endpoint_.Close();
    state_->executor.WaitIdle();  // after this nothing calls the handler
    state_->uploads.Close();
  }

  absl::Status Serve(std::unique_ptr<Listener> listener) {
    std::optional<identity::IdentityFiles> files;
    if (gate_ != nullptr) files = gate_->authority().server_files();
    MACAW_ASSIGN_OR_RETURN(auto credentials, ServerCredentialsFor(listener->address(), files));
    grpc::ServerBuilder builder;
    if (gate_ != nullptr) AddGate(builder, *credentials);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(&service_);
    return endpoint_.Serve(std::move(listener), credentials, builder,
                           gate_ != nullptr ? &gate_->guard() : nullptr);
  }

  std::string address() const override { return endpoint_.address(); }

 private:
  void AddGate(grpc::ServerBuilder& builder, grpc::ServerCredentials& credentials) {
    credentials.SetAuthMetadataProcessor(RefuseStrangers(gate_));
    handshakes_.emplace(*gate_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(WatchCalls(gate_));
    builder.experimental().SetInterceptorCreators(std::move(factories));
    builder.RegisterService(&enrolment_);
  }

  const std::shared_ptr<Gate> gate_;
  std::optional<HandshakeAudit> handshakes_;  // of a server with TLS
  const std::shared_ptr<ServiceState> state_;
  FleetService service_;
  EnrolmentService enrolment_;
  Endpoint endpoint_;  // destroyed first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> FleetServer::Bind(const ServerOptions& options) {
  if (options.max_inline_bytes > kMaxInlineBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_inline_bytes ", options.max_inline_bytes,
                                                   " does not fit a message; at most ",
                                                   kMaxInlineBytes));
  }
  MACAW_ASSIGN_OR_RETURN(Address address, ParseAddress(options.listen));
  if (options.authority == nullptr) MACAW_RETURN_IF_ERROR(CheckMayBePlain(address));
  MACAW_RETURN_IF_ERROR(PrepareListen(address));
  return Listener::Bind(address, ReservedDescriptors());
}

absl::StatusOr<std::unique_ptr<FleetServer>> FleetServer::Start(const ServerOptions& options,
                                                                fleet::FleetHandler& handler) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Bind(options));
  return Start(options, std::move(listener), handler);
}

absl::StatusOr<std::unique_ptr<FleetServer>> FleetServer::Start(const ServerOptions& options,
                                                                std::unique_ptr<Listener> listener,
                                                                fleet::FleetHandler& handler) {
  std::shared_ptr<Gate> gate;
  if (options.authority != nullptr && UsesTls(listener->address()))
    gate = std::make_shared<Gate>(*options.authority, options.audit, GuardLimits{},
                                  options.calls_of_name);
  std::unique_ptr<PartialFiles> partials;
  if (!options.partial_uploads.empty() && !IsPrivate(options.listen)) {
    MACAW_ASSIGN_OR_RETURN(partials,
                           PartialFiles::Open({.folder = options.partial_uploads,
                                               .budget_bytes = options.upload_budget_bytes}));
  }
  auto server =
      std::make_unique<GrpcFleetServer>(options, std::move(gate), std::move(partials), handler);
  MACAW_RETURN_IF_ERROR(server->Serve(std::move(listener)));
  return server;
}

}  // namespace macaw::wire
