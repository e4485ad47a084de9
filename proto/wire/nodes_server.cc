#include "proto/wire/nodes_server.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/status.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/fleet/client_table.h"
#include "proto/wire/admin_listener.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using identity::Role;
using Context = grpc::CallbackServerContext;

constexpr size_t kMostClientBytes = 8 << 10;  // of the names in an invite

class NodesService final : public v1::Nodes::CallbackService {
 public:
  explicit NodesService(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  grpc::ServerUnaryReactor* Invite(Context* context, const v1::InviteRequest* request,
                                   v1::InviteReply* reply) override {
    return Answer(*context, [this, context, request, reply]() -> absl::Status {
      MACAW_ASSIGN_OR_RETURN(const Asked asked,
                             ReadChange(gate_.get(), *context, request->change()));
      MACAW_ASSIGN_OR_RETURN(identity::NewNode node, ReadNode(*request));
      MACAW_RETURN_IF_ERROR(CheckNoOperator(request->name()));
      const absl::Time now = absl::Now();
      MACAW_ASSIGN_OR_RETURN(*reply->mutable_code(), gate_->authority().InviteNode(node, now));
      reply->set_until(
          absl::FormatTime(absl::RFC3339_sec, now + node.open_for, absl::UTCTimeZone()));
      Logger("identity").Info(absl::StrCat("invited node=", request->name(), " by=", asked.by));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* Revoke(Context* context, const v1::NodeRequest* request,
                                   v1::ChangeReply* reply) override {
    return Answer(*context, [this, context, request, reply]() -> absl::Status {
      MACAW_ASSIGN_OR_RETURN(const Asked asked,
                             ReadChange(gate_.get(), *context, request->change()));
      if (request->name().size() > kMostText) return TooLong("name");
      MACAW_RETURN_IF_ERROR(CheckNoOperator(request->name()));
      const std::string why =
          absl::StrCat(asked.reason, asked.reason.empty() ? "" : " ", "(by ", asked.by, ")");
      MACAW_RETURN_IF_ERROR(gate_->authority().Revoke(request->name(), why, absl::Now()));
      Logger("identity").Info(absl::StrCat("revoked node=", request->name(), " by=", asked.by));
      reply->set_text(ShortCleanText(
          absl::StrCat("\"", request->name(), "\" is shut out; a new invite lets it come back")));
      return absl::OkStatus();
    });
  }

 private:
  // A line of the registry waits for the disk: not on a thread that answers heartbeats.
  template <typename Call>
  grpc::ServerUnaryReactor* Answer(Context& context, Call call) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    executor_.Post([reactor, call = std::move(call)] { reactor->Finish(ToGrpc(call())); });
    return reactor;
  }

  static absl::StatusOr<identity::NewNode> ReadNode(const v1::InviteRequest& request) {
    identity::NewNode node;
    node.grant.subject.name = request.name();
    MACAW_ASSIGN_OR_RETURN(node.grant.subject.role, identity::ParseRole(request.role()));
    if (node.grant.subject.role != Role::kDevice && node.grant.subject.role != Role::kWorker) {
      return absl::PermissionDeniedError(
          "an operator invites devices and workers; operators are invited where the authority's "
          "folder is (macaw pki invite)");
    }
    size_t bytes = 0;
    for (const std::string& client : request.clients()) bytes += client.size() + 1;
    if (bytes > kMostClientBytes) {
      return Malformed("clients", absl::StrCat("is longer than ", kMostClientBytes,
                                               " bytes: invite the node with some of them, and "
                                               "enter all of them by macaw pki assign"));
    }
    const std::set<std::string> clients(request.clients().begin(), request.clients().end());
    if (clients != std::set<std::string>{""})
      MACAW_RETURN_IF_ERROR(fleet::CheckNames({clients.begin(), clients.end()}));
    SetClients({request.clients().begin(), request.clients().end()}, node.grant);
    constexpr uint64_t kMostSeconds = 365ull * 24 * 3600;
    if (request.open_for_seconds() > kMostSeconds)
      return Malformed("open_for_seconds", "is more than a year");
    if (request.open_for_seconds() > 0)
      node.open_for = absl::Seconds(static_cast<int64_t>(request.open_for_seconds()));
    return node;
  }

  // Whoever may steer runs must not decide who else may.
  absl::Status CheckNoOperator(const std::string& name) {
    MACAW_ASSIGN_OR_RETURN(const auto nodes, gate_->authority().Nodes());
    const auto found = nodes.find(name);
    if (found == nodes.end()) return absl::OkStatus();
    const identity::NodeRecord& node = found->second;
    const auto is_operator = [](const std::shared_ptr<const identity::Grant>& grant) {
      return grant != nullptr && grant->subject.role == Role::kOperator;
    };
    if (!is_operator(node.grant) && !(node.invite.has_value() && is_operator(node.invite->grant)))
      return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("\"", name,
                     "\" is an operator: operators are invited and revoked where the authority's "
                     "folder is (macaw pki)"));
  }

  const std::shared_ptr<Gate> gate_;
  Executor executor_{"nodes", 1};
};

}  // namespace

std::unique_ptr<grpc::Service> MakeNodesService(std::shared_ptr<Gate> gate) {
  return std::make_unique<NodesService>(std::move(gate));
}

}  // namespace macaw::wire
