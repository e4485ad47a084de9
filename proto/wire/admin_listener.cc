#include "proto/wire/admin_listener.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "proto/wire/address.h"
#include "proto/wire/credentials.h"
#include "proto/wire/endpoint.h"
#include "proto/wire/enrolment.h"
#include "proto/wire/nodes_server.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

class OperatorsServer final : public AdminServer {
 public:
  // `gate`: null for a server without TLS.
  OperatorsServer(std::shared_ptr<Gate> gate, std::unique_ptr<grpc::Service> service)
      : gate_(std::move(gate)), service_(std::move(service)) {
    if (gate_ != nullptr) nodes_ = MakeNodesService(gate_);
  }

  absl::Status Listen(Address address) {
    std::optional<identity::IdentityFiles> files;
    if (gate_ != nullptr) files = gate_->authority().server_files();
    MACAW_ASSIGN_OR_RETURN(auto credentials, ServerCredentialsFor(address, files));
    MACAW_RETURN_IF_ERROR(PrepareListen(address));
    MACAW_ASSIGN_OR_RETURN(auto listener, Listener::Bind(address, ReservedDescriptors()));
    grpc::ServerBuilder builder;
    if (gate_ != nullptr) {
      credentials->SetAuthMetadataProcessor(RefuseAllButOperators(gate_));
      std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watch;
      watch.push_back(WatchCalls(gate_));
      builder.experimental().SetInterceptorCreators(std::move(watch));
    }
    builder.RegisterService(service_.get());
    if (nodes_ != nullptr) builder.RegisterService(nodes_.get());
    // The health service is a switch of the whole process. (Reflection is not served: its library
    // adds itself to every server of a process that links it, also to that of the workers.)
    grpc::EnableDefaultHealthCheckService(true);
    const absl::Status status = endpoint_.Serve(std::move(listener), credentials, builder,
                                                gate_ != nullptr ? &gate_->guard() : nullptr);
    grpc::EnableDefaultHealthCheckService(false);
    return status;
  }

  std::string address() const override { return endpoint_.address(); }

 private:
  const std::shared_ptr<Gate> gate_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Service> nodes_;  // with an authority only
  Endpoint endpoint_;                     // destroyed first
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> ListenForOperators(
    const AdminOptions& options,
    const std::function<std::unique_ptr<grpc::Service>(std::shared_ptr<Gate> gate)>& make) {
  MACAW_ASSIGN_OR_RETURN(Address address, ParseAddress(options.listen));
  std::shared_ptr<Gate> gate;
  if (options.authority != nullptr && UsesTls(address))
    gate = std::make_shared<Gate>(*options.authority, options.audit);
  auto server = std::make_unique<OperatorsServer>(gate, make(gate));
  MACAW_RETURN_IF_ERROR(server->Listen(std::move(address)));
  return server;
}

absl::StatusOr<Asked> ReadChange(Gate* gate, const grpc::CallbackServerContext& context,
                                 const v1::ChangeRequest& request) {
  if (request.request_id().size() != 16) return Malformed("request_id", "must have 16 bytes");
  if (request.by().size() > kMostText) return TooLong("by");
  if (request.reason().size() > kMostText) return TooLong("reason");
  Asked asked{.request_id = request.request_id(), .by = request.by(), .reason = request.reason()};
  if (gate != nullptr) {
    MACAW_ASSIGN_OR_RETURN(const fleet::CallerPtr caller, gate->Identify(*context.auth_context()));
    asked.by = caller->node;
  }
  return asked;
}

absl::Status TooLong(absl::string_view field) {
  return Malformed(std::string(field), absl::StrCat("is longer than ", kMostText, " bytes"));
}

}  // namespace macaw::wire
