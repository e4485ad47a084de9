#include <grpcpp/create_channel.h>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "core/status.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/wire/address.h"
#include "proto/wire/admin.h"
#include "proto/wire/channel_settings.h"
#include "proto/wire/credentials.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

constexpr std::chrono::seconds kCallPatience{10};
constexpr int kMostStatusBytes = 64 << 20;  // of a fleet with many nodes

std::string NewRequestId() {
  std::random_device random;
  std::string id(16, '\0');
  for (char& c : id) c = static_cast<char>(random());
  return id;
}

class GrpcAdminClient final : public AdminClient {
 public:
  explicit GrpcAdminClient(std::shared_ptr<grpc::Channel> channel)
      : stub_(v1::Admin::NewStub(std::move(channel))) {}

  absl::StatusOr<std::string> Status() override {
    v1::StatusReply reply;
    MACAW_RETURN_IF_ERROR(Call(&v1::Admin::Stub::Status, v1::StatusRequest(), reply));
    return std::move(*reply.mutable_json());
  }

  absl::StatusOr<admin::Changed> Apply(admin::Change change) override {
    v1::ChangeRequest request;
    request.set_request_id(change.request_id.empty() ? NewRequestId() : change.request_id);
    request.set_reason(CleanText(change.reason));
    request.set_by(CleanText(change.by));
    v1::ChangeReply reply;
    MACAW_RETURN_IF_ERROR(Send(change, request, reply));
    return admin::Changed{.text = reply.text()};
  }

  absl::Status Watch(uint64_t from,
                     const std::function<bool(uint64_t, const std::string&)>& line) override {
    grpc::ClientContext context;
    v1::WatchRequest request;
    request.set_from_sequence(from);
    const auto events = stub_->Watch(&context, request);
    bool enough = false;
    for (v1::Event event; !enough && events->Read(&event);) {
      enough = !line(event.sequence(), event.json());
      if (enough) context.TryCancel();
    }
    const absl::Status status = FromGrpc(events->Finish());
    return enough ? absl::OkStatus() : status;
  }

 private:
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Reply*),
                    const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    return FromGrpc((stub_.get()->*method)(&context, request, &reply));
  }

  absl::Status Send(const admin::Change& change, const v1::ChangeRequest& request,
                    v1::ChangeReply& reply) {
    v1::NodeRequest node;
    *node.mutable_change() = request;
    node.set_name(change.node);
    switch (change.action) {
      case admin::Action::kPause:
        return Call(&v1::Admin::Stub::Pause, request, reply);
      case admin::Action::kResume:
        return Call(&v1::Admin::Stub::Resume, request, reply);
      case admin::Action::kDrain:
        return Call(&v1::Admin::Stub::Drain, request, reply);
      case admin::Action::kAbortRound: {
        v1::AbortRoundRequest round;
        *round.mutable_change() = request;
        round.set_round(change.round);
        return Call(&v1::Admin::Stub::AbortRound, round, reply);
      }
      case admin::Action::kQuarantine:
        return Call(&v1::Admin::Stub::Quarantine, node, reply);
      case admin::Action::kAdmit:
        return Call(&v1::Admin::Stub::Admit, node, reply);
    }
    return absl::InvalidArgumentError("no such change");
  }

  const std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Dial(
    const std::string& server, const std::optional<identity::IdentityFiles>& identity) {
  MACAW_ASSIGN_OR_RETURN(const Address address, ParseAddress(server));
  MACAW_ASSIGN_OR_RETURN(auto credentials, ChannelCredentialsFor(address, identity));
  grpc::ChannelArguments arguments;
  for (const auto& [key, value] : ClientSettings(address)) arguments.SetInt(key, value);
  arguments.SetMaxReceiveMessageSize(kMostStatusBytes);
  return std::make_unique<GrpcAdminClient>(
      grpc::CreateCustomChannel(address.Target(), credentials, arguments));
}

}  // namespace macaw::wire
