#pragma once

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "macaw/v1/admin.pb.h"
#include "proto/wire/admin.h"
#include "proto/wire/gate.h"

// What the services for operators share: how they listen, and who asks.
namespace macaw::wire {

constexpr size_t kMostText = 1000;  // bytes of a name or a reason

// Serves what `make` returns, with gRPC's health service. `gate` is null without TLS.
absl::StatusOr<std::unique_ptr<AdminServer>> ListenForOperators(
    const AdminOptions& options,
    const std::function<std::unique_ptr<grpc::Service>(std::shared_ptr<Gate> gate)>& make);

struct Asked {
  std::string request_id;  // 16 bytes
  std::string by;          // over TLS the certificate's name, else what the caller says
  std::string reason;
};
absl::StatusOr<Asked> ReadChange(Gate* gate, const grpc::CallbackServerContext& context,
                                 const v1::ChangeRequest& request);

absl::Status TooLong(absl::string_view field);

}  // namespace macaw::wire
