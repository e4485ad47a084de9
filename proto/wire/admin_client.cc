#include <grpcpp/create_channel.h>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/utf8.h"
#include "identity/verify.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/wire/address.h"
#include "proto/wire/admin.h"
#include "proto/wire/channel_settings.h"
#include "proto/wire/credentials.h"
#include "proto/wire/limits.h"
#include "proto/wire/proxy.h"
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

// A name that had to be changed to be sent would be another's.
absl::Status CheckName(absl::string_view what, const std::string& name) {
  const std::string sent = ShortCleanText(name);
  if (sent == name) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " \"", sent,
                   "\": write its name in UTF-8, short and without control characters"));
}

class GrpcAdminClient final : public AdminClient {
 public:
  GrpcAdminClient(std::shared_ptr<grpc::Channel> channel, std::optional<Proxy> proxy)
      : proxy_(std::move(proxy)),
        stub_(v1::Admin::NewStub(channel)),
        queue_(v1::Queue::NewStub(channel)),
        nodes_(v1::Nodes::NewStub(channel)) {}

  absl::StatusOr<std::string> Status() override {
    v1::StatusReply reply;
    MACAW_RETURN_IF_ERROR(Call(&v1::Admin::Stub::Status, v1::StatusRequest(), reply));
    return std::move(*reply.mutable_json());
  }

  absl::StatusOr<admin::Changed> Apply(admin::Change change) override {
    MACAW_RETURN_IF_ERROR(CheckName("node", change.node));
    v1::ChangeRequest request = Head(change.by, change.reason);
    if (!change.request_id.empty()) request.set_request_id(change.request_id);
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
    const absl::Status status = NameProxy(FromGrpc(events->Finish()), proxy_);
    return enough ? absl::OkStatus() : status;
  }

  absl::StatusOr<InviteCode> Invite(const NodeInvite& node) override {
    v1::InviteRequest request;
    *request.mutable_change() = Head("", "");
    MACAW_RETURN_IF_ERROR(CheckName("node", node.name));
    request.set_name(node.name);
    request.set_role(ShortCleanText(node.role));
    for (const std::string& client : node.clients) {
      MACAW_RETURN_IF_ERROR(CheckName("client", client));
      request.add_clients(client);
    }
    request.set_open_for_seconds(node.open_for_seconds);
    v1::InviteReply reply;
    MACAW_RETURN_IF_ERROR(CallNodes(&v1::Nodes::Stub::Invite, request, reply));
    return InviteCode{.code = reply.code(), .until = reply.until()};
  }

  absl::StatusOr<std::string> Revoke(const std::string& node, const std::string& reason) override {
    v1::NodeRequest request;
    *request.mutable_change() = Head("", reason);
    MACAW_RETURN_IF_ERROR(CheckName("node", node));
    request.set_name(node);
    v1::ChangeReply reply;
    MACAW_RETURN_IF_ERROR(CallNodes(&v1::Nodes::Stub::Revoke, request, reply));
    return reply.text();
  }

  absl::StatusOr<std::string> Submit(admin::Submission submission) override {
    v1::SubmitRequest request;
    *request.mutable_change() = Head(submission.by, "");
    if (!submission.request_id.empty())
      request.mutable_change()->set_request_id(submission.request_id);
    MACAW_RETURN_IF_ERROR(CheckName("run", submission.name));
    request.set_name(submission.name);
    // Whole: a plan that was cut could still be one, of another run.
    if (!IsUtf8(submission.plan))
      return absl::InvalidArgumentError("the plan is not UTF-8: write it in UTF-8");
    if (submission.plan.size() > kMaxPlanBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has ", submission.plan.size(),
                                                     " bytes, and a standing server takes at most ",
                                                     kMaxPlanBytes));
    }
    request.set_plan(std::move(submission.plan));
    // A server bears little from a connection that it knows nothing of.
    if (request.ByteSizeLong() > kMaxFirstBytes) MACAW_RETURN_IF_ERROR(Runs().status());
    v1::ChangeReply reply;
    MACAW_RETURN_IF_ERROR(CallQueue(&v1::Queue::Stub::Submit, request, reply));
    return reply.text();
  }

  absl::StatusOr<std::string> Withdraw(const std::string& run, const std::string& by,
                                       const std::string& reason) override {
    v1::WithdrawRequest request;
    *request.mutable_change() = Head(by, reason);
    MACAW_RETURN_IF_ERROR(CheckName("run", run));
    request.set_name(run);
    v1::ChangeReply reply;
    MACAW_RETURN_IF_ERROR(CallQueue(&v1::Queue::Stub::Withdraw, request, reply));
    return reply.text();
  }

  absl::StatusOr<std::string> Runs() override {
    v1::RunsReply reply;
    MACAW_RETURN_IF_ERROR(CallQueue(&v1::Queue::Stub::Runs, v1::RunsRequest(), reply));
    return std::move(*reply.mutable_json());
  }

  absl::Status Results(
      const std::string& run,
      const std::function<absl::Status(const admin::ResultPiece&)>& take) override {
    grpc::ClientContext context;
    v1::ResultsRequest request;
    request.set_folders(true);
    MACAW_RETURN_IF_ERROR(CheckName("run", run));
    request.set_name(run);
    const auto pieces = queue_->Results(&context, request);
    absl::Status taken;
    for (v1::ResultsPiece piece; taken.ok() && pieces->Read(&piece);) {
      taken = take(
          {.file = piece.file(), .size = piece.size(), .data = std::move(*piece.mutable_data())});
      if (!taken.ok()) context.TryCancel();
    }
    const absl::Status status = NameProxy(FromGrpc(pieces->Finish()), proxy_);
    return taken.ok() ? ForQueue(status) : taken;
  }

 private:
  static v1::ChangeRequest Head(const std::string& by, const std::string& reason) {
    v1::ChangeRequest head;
    head.set_request_id(NewRequestId());
    head.set_by(ShortCleanText(by));
    head.set_reason(ShortCleanText(reason));
    return head;
  }

  template <typename Stub, typename Request, typename Reply>
  absl::Status Invoke(Stub& stub,
                      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                      const Request& request, Reply& reply) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    return NameProxy(FromGrpc((stub.*method)(&context, request, &reply)), proxy_);
  }
  // The same address serves one of the two.
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Reply*),
                    const Request& request, Reply& reply) {
    const absl::Status status = Invoke(*stub_, method, request, reply);
    if (!absl::IsUnimplemented(status)) return status;
    return absl::UnimplementedError(
        "that is no operators' address of a run's server (server.admin): it is the address of "
        "workers, or that of a standing server, which answers `macaw admin runs`, submit, withdraw "
        "and results; its runs have one with --run-admin");
  }
  template <typename Request, typename Reply>
  absl::Status CallQueue(grpc::Status (v1::Queue::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                         const Request& request, Reply& reply) {
    return ForQueue(Invoke(*queue_, method, request, reply));
  }
  template <typename Request, typename Reply>
  absl::Status CallNodes(grpc::Status (v1::Nodes::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                         const Request& request, Reply& reply) {
    const absl::Status status = Invoke(*nodes_, method, request, reply);
    if (!absl::IsUnimplemented(status)) return status;
    return absl::UnimplementedError(
        "that address asks for no identities, or is one of an earlier version: on the authority's "
        "machine, `macaw pki` invites and revokes");
  }
  static absl::Status ForQueue(const absl::Status& status) {
    if (!absl::IsUnimplemented(status)) return status;
    return absl::UnimplementedError(
        "the server of a single run listens there, not a standing server (macaw-server "
        "--standing), or one of an earlier version");
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
      case admin::Action::kGiveUp:
        return Call(&v1::Admin::Stub::GiveUp, node, reply);
      case admin::Action::kSkipEvaluation: {
        v1::SkipEvaluationRequest evaluation;
        *evaluation.mutable_change() = request;
        evaluation.set_round(change.round);
        return Call(&v1::Admin::Stub::SkipEvaluation, evaluation, reply);
      }
    }
    return absl::InvalidArgumentError("no such change");
  }

  const std::optional<Proxy> proxy_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
  const std::unique_ptr<v1::Queue::Stub> queue_;
  const std::unique_ptr<v1::Nodes::Stub> nodes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Dial(
    const std::string& server, const std::optional<identity::IdentityFiles>& identity) {
  MACAW_ASSIGN_OR_RETURN(const Address address, ParseAddress(server));
  if (identity.has_value() && UsesTls(address)) {
    MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(*identity));
    MACAW_RETURN_IF_ERROR(Annotate(identity::CheckTime(own.certificate, absl::Now()),
                                   "`macaw-worker renew` gets another one"));
  }
  MACAW_ASSIGN_OR_RETURN(auto credentials, ChannelCredentialsFor(address, identity));
  grpc::ChannelArguments arguments;
  for (const auto& [key, value] : ClientSettings(address)) arguments.SetInt(key, value);
  arguments.SetMaxReceiveMessageSize(kMostStatusBytes);
  return std::make_unique<GrpcAdminClient>(
      grpc::CreateCustomChannel(address.Target(), credentials, arguments), ProxyTo(address));
}

}  // namespace macaw::wire
