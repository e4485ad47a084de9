#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/fleet/link.h"
#include "proto/fleet/once.h"
#include "proto/wire/answers.h"
#include "proto/wire/convert.h"
#include "proto/wire/refusal.h"

// A unary RPC on the server, and how it is answered once. Any thread.
namespace macaw::wire {

// One unary RPC. It ends once: by its answer, by a refusal, or because the client or the server has
// gone. The first to end it calls Finish. Until then gRPC keeps the RPC, its request and its
// response alive; afterwards nobody may use them.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall() = default;
  // `answers` counts its answer.
  explicit UnaryCall(std::shared_ptr<Answers> answers) : answers_(std::move(answers)) {}

  void OnCancel() override {
    if (Win(*over_)) Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
  }
  void OnDone() override {
    if (answered_) answers_->Left();
    delete this;
  }

  // A reference to the call, for everybody else. It may be used after the RPC has ended; then it
  // does nothing. Copyable.
  class Handle {
   public:
    explicit Handle(UnaryCall* call) : call_(call), over_(call->over_) {}
    // Ends the RPC with the response that `fill` writes. If the RPC has already ended, returns
    // false and does not call `fill`.
    template <typename F>
    bool End(F&& fill) const {
      if (!Win(*over_)) return false;
      call_->Answer(fill());
      return true;
    }
    void Refuse(const absl::Status& status) const {
      End([&] { return status; });
    }
    bool over() const { return over_->load(); }

   private:
    UnaryCall* call_;
    std::shared_ptr<std::atomic<bool>> over_;
  };

 private:
  static bool Win(std::atomic<bool>& over) { return !over.exchange(true); }
  void Answer(const absl::Status& status) {
    answered_ = answers_ != nullptr;
    if (answered_) answers_->Given();
    Finish(ToGrpc(status));
  }
  const std::shared_ptr<Answers> answers_;  // may be null
  bool answered_ = false;                   // and counted
  const std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
};

template <typename Message>
void WriteMessage(const Message& message, grpc::ByteBuffer* to) {
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, to, &own);
}

// Ends the RPC with the handler's answer; `convert` makes the message. `unheard` gets an answer
// that comes after the caller has gone.
template <typename T, typename Convert, typename Unheard>
fleet::Reply<T> ReplyTo(UnaryCall::Handle handle, grpc::ByteBuffer* response, Convert convert,
                        Unheard unheard) {
  return fleet::AnswerOnce<T>([handle, response, convert = std::move(convert),
                               unheard = std::move(unheard)](absl::StatusOr<T> answer) {
    const bool heard = handle.End([&]() -> absl::Status {
      if (!answer.ok()) return answer.status();
      WriteMessage(convert(*answer), response);
      return absl::OkStatus();
    });
    if (!heard && answer.ok()) unheard(*answer);
  });
}

template <typename T, typename Convert>
fleet::Reply<T> ReplyTo(UnaryCall::Handle handle, grpc::ByteBuffer* response, Convert convert) {
  return ReplyTo<T>(std::move(handle), response, std::move(convert), [](const T&) {});
}

template <typename T>
fleet::Reply<T> ReplyTo(UnaryCall::Handle handle, grpc::ByteBuffer* response) {
  return ReplyTo<T>(std::move(handle), response, [](const T& value) { return ToWire(value); });
}

}  // namespace macaw::wire
