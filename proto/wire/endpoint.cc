#include "proto/wire/endpoint.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "proto/wire/channel_settings.h"

namespace macaw::wire {

absl::Status Endpoint::Serve(std::unique_ptr<Listener> listener,
                             const std::shared_ptr<grpc::ServerCredentials>& credentials,
                             grpc::ServerBuilder& builder, ConnectionGuard* guard) {
  address_ = listener->address().Text();
  for (const auto& [key, value] : ServerSettings()) builder.AddChannelArgument(key, value);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::InternalError(
        absl::StrCat("cannot listen on ", address_, ": gRPC gave no reason"));
  }
  listener_ = std::move(listener);
  listener_->Start([acceptor = acceptor_.get(), guard](int listening, Fd connection) {
    if (guard != nullptr && !guard->Admit(connection.get())) return;
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listening;
    parameters.fd = connection.Release();  // gRPC closes it
    acceptor->HandleNewConnection(&parameters);
  });
  return absl::OkStatus();
}

void Endpoint::Close() {
  listener_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace macaw::wire
