// The calls that concern the queue of a standing server.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/wire/admin.h"
#include "proto/wire/admin_listener.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

constexpr size_t kMostPlan = 1 << 20;  // bytes

class QueueService final : public v1::Queue::CallbackService {
 public:
  // `gate`: null for a server without TLS.
  QueueService(std::shared_ptr<Gate> gate, admin::QueueHandler& handler)
      : gate_(std::move(gate)), handler_(handler) {}

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::ChangeReply* reply) override {
    return Answer(*context, *reply, [&]() -> absl::StatusOr<std::string> {
      MACAW_ASSIGN_OR_RETURN(Asked asked, ReadChange(gate_.get(), *context, request->change()));
      if (request->name().size() > kMostText) return TooLong("name");
      if (request->plan().size() > kMostPlan)
        return Malformed("plan", absl::StrCat("is longer than ", kMostPlan, " bytes"));
      return handler_.Submit({.request_id = std::move(asked.request_id),
                              .name = request->name(),
                              .by = std::move(asked.by),
                              .plan = request->plan()});
    });
  }

  grpc::ServerUnaryReactor* Withdraw(grpc::CallbackServerContext* context,
                                     const v1::WithdrawRequest* request,
                                     v1::ChangeReply* reply) override {
    return Answer(*context, *reply, [&]() -> absl::StatusOr<std::string> {
      MACAW_ASSIGN_OR_RETURN(const Asked asked,
                             ReadChange(gate_.get(), *context, request->change()));
      return handler_.Withdraw(request->name(), asked.by, asked.reason);
    });
  }

  grpc::ServerUnaryReactor* Runs(grpc::CallbackServerContext* context, const v1::RunsRequest*,
                                 v1::RunsReply* reply) override {
    reply->set_json(handler_.Runs());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  template <typename Call>
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                          v1::ChangeReply& reply, const Call& call) {
    const absl::StatusOr<std::string> said = call();
    if (said.ok()) reply.set_text(CleanText(*said));
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    reactor->Finish(ToGrpc(said.status()));
    return reactor;
  }

  const std::shared_ptr<Gate> gate_;
  admin::QueueHandler& handler_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options,
                                                                admin::QueueHandler& handler) {
  return ListenForOperators(options, [&handler](std::shared_ptr<Gate> gate) {
    return std::make_unique<QueueService>(std::move(gate), handler);
  });
}

}  // namespace macaw::wire
