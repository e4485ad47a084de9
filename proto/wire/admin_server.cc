// The calls that concern the run of a server.
#include <utility>

#include "absl/synchronization/mutex.h"
#include "core/status.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/fleet/once.h"
#include "proto/wire/admin.h"
#include "proto/wire/admin_listener.h"
#include "proto/wire/refusal.h"
#include "proto/wire/service.h"

namespace macaw::wire {
namespace {

using Context = grpc::CallbackServerContext;
constexpr size_t kLinesAtOnce = 64;

// Sends the lines of a feed to one caller. The feed may call Go at any time, also when the call is
// over, so it shares the object.
class WatchCall final : public grpc::ServerWriteReactor<v1::Event>,
                        public std::enable_shared_from_this<WatchCall> {
 public:
  static WatchCall* Start(admin::EventFeed& feed, uint64_t from) {
    const auto call = std::make_shared<WatchCall>(feed, from);
    call->self_ = call;
    call->Go();
    return call.get();
  }
  WatchCall(admin::EventFeed& feed, uint64_t from)
      : feed_(feed), next_(from == 0 ? feed.next() : from) {}

  void OnWriteDone(bool ok) override {
    if (!ok) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
    Go();
  }
  void OnCancel() override { End(grpc::Status(grpc::StatusCode::CANCELLED, "the call was ended")); }
  void OnDone() override {
    feed_.Forget(waiter_);
    self_.reset();
  }

 private:
  // Sends the next line, or waits for it, or ends the call. There is one write or one waiter at a
  // time, so this never runs twice at once.
  void Go() {
    if (sent_ == batch_.lines.size()) {
      batch_ = feed_.Read(next_, kLinesAtOnce);
      sent_ = 0;
    }
    if (sent_ < batch_.lines.size()) return Write();
    if (batch_.closed) return End(grpc::Status::OK);
    waiter_ = feed_.WhenThereIs(next_, [call = shared_from_this()] { call->Go(); });
  }

  void Write() {
    absl::MutexLock lock(&mutex_);
    if (over_) return;
    event_.set_sequence(batch_.first + sent_);
    event_.set_json(batch_.lines[sent_]);
    next_ = event_.sequence() + 1;
    ++sent_;
    StartWrite(&event_);
  }

  void End(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(over_, true)) Finish(status);
  }

  std::shared_ptr<WatchCall> self_;  // until gRPC is done with it
  admin::EventFeed& feed_;
  uint64_t next_;
  admin::EventFeed::Batch batch_;
  size_t sent_ = 0;
  v1::Event event_;
  // Of the waiter, for Forget. An older number at worst, when the news came at once: then the
  // forgotten waiter holds this object until the next line.
  std::atomic<uint64_t> waiter_ = 0;
  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  // `gate`: null for a server without TLS.
  AdminService(std::shared_ptr<Gate> gate, admin::AdminHandler& handler)
      : gate_(std::move(gate)), handler_(handler) {}

  grpc::ServerUnaryReactor* Status(Context*, const v1::StatusRequest*,
                                   v1::StatusReply* reply) override {
    auto* call = new UnaryCall;
    const UnaryCall::Handle handle(call);
    handler_.Status(fleet::AnswerOnce<admin::RunStatus>(
        [handle, reply](const absl::StatusOr<admin::RunStatus>& status) {
          handle.End([&]() -> absl::Status {
            if (!status.ok()) return status.status();
            reply->set_json(admin::JsonOf(*status));
            return absl::OkStatus();
          });
        }));
    return call;
  }

  grpc::ServerWriteReactor<v1::Event>* Watch(Context*, const v1::WatchRequest* request) override {
    return WatchCall::Start(handler_.events(), request->from_sequence());
  }

  grpc::ServerUnaryReactor* Pause(Context* context, const v1::ChangeRequest* request,
                                  v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kPause}, *request, reply);
  }
  grpc::ServerUnaryReactor* Resume(Context* context, const v1::ChangeRequest* request,
                                   v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kResume}, *request, reply);
  }
  grpc::ServerUnaryReactor* Drain(Context* context, const v1::ChangeRequest* request,
                                  v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kDrain}, *request, reply);
  }
  grpc::ServerUnaryReactor* AbortRound(Context* context, const v1::AbortRoundRequest* request,
                                       v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kAbortRound, .round = request->round()},
                 request->change(), reply);
  }
  grpc::ServerUnaryReactor* Quarantine(Context* context, const v1::NodeRequest* request,
                                       v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kQuarantine, .node = request->name()},
                 request->change(), reply);
  }
  grpc::ServerUnaryReactor* Admit(Context* context, const v1::NodeRequest* request,
                                  v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kAdmit, .node = request->name()},
                 request->change(), reply);
  }
  grpc::ServerUnaryReactor* GiveUp(Context* context, const v1::NodeRequest* request,
                                   v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kGiveUp, .node = request->name()},
                 request->change(), reply);
  }
  grpc::ServerUnaryReactor* SkipEvaluation(Context* context,
                                           const v1::SkipEvaluationRequest* request,
                                           v1::ChangeReply* reply) override {
    return Apply(*context, {.action = admin::Action::kSkipEvaluation, .round = request->round()},
                 request->change(), reply);
  }

 private:
  grpc::ServerUnaryReactor* Apply(const Context& context, admin::Change change,
                                  const v1::ChangeRequest& request, v1::ChangeReply* reply) {
    auto* call = new UnaryCall;
    const UnaryCall::Handle handle(call);
    absl::StatusOr<Asked> asked = ReadChange(gate_.get(), context, request);
    if (asked.ok() && change.node.size() > kMostText) asked = TooLong("name");
    if (!asked.ok()) {
      handle.Refuse(asked.status());
      return call;
    }
    change.request_id = std::move(asked->request_id);
    change.by = std::move(asked->by);
    change.reason = std::move(asked->reason);
    handler_.Apply(std::move(change),
                   fleet::AnswerOnce<admin::Changed>(
                       [handle, reply](const absl::StatusOr<admin::Changed>& said) {
                         handle.End([&]() -> absl::Status {
                           if (!said.ok()) return said.status();
                           reply->set_text(ShortCleanText(said->text));
                           return absl::OkStatus();
                         });
                       }));
    return call;
  }

  const std::shared_ptr<Gate> gate_;
  admin::AdminHandler& handler_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options,
                                                                admin::AdminHandler& handler) {
  return ListenForOperators(options, [&handler](std::shared_ptr<Gate> gate) {
    return std::make_unique<AdminService>(std::move(gate), handler);
  });
}

}  // namespace macaw::wire
