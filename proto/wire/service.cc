#include "proto/wire/service.h"

#include "core/status.h"
#include "proto/fleet/once.h"
#include "proto/wire/address.h"
#include "proto/wire/limits.h"
#include "proto/wire/part_blob.h"

namespace macaw::wire {
namespace {

using fleet::UploadVerdict;
using Handle = UnaryCall::Handle;

// Turns the handler's answer into the RPC's end; `convert` makes the message.
template <typename T, typename Message, typename Convert>
fleet::Reply<T> ReplyTo(Handle handle, Message* response, Convert convert) {
  return fleet::AnswerOnce<T>(
      [handle, response, convert = std::move(convert)](absl::StatusOr<T> answer) {
        handle.End([&]() -> absl::Status {
          if (!answer.ok()) return answer.status();
          *response = convert(*answer);
          return absl::OkStatus();
        });
      });
}

template <typename T, typename Message>
fleet::Reply<T> ReplyTo(Handle handle, Message* response) {
  return ReplyTo<T>(std::move(handle), response, [](const T& value) { return ToWire(value); });
}

// The request as our own, without a copy: after the RPC has ended (the client may go at any moment)
// gRPC frees it, while the executor may still be reading. The object was not made const, only
// handed out so.
template <typename Message>
Message Take(const Message* request) {
  return std::move(*const_cast<Message*>(request));
}

// Fills in the bytes of a blob that came by name only.
absl::Status Resolve(ServiceState& state, const fleet::Caller& caller, fleet::Blob& blob) {
  if (!blob.named() || blob.bytes != nullptr) return absl::OkStatus();
  auto bytes = state.uploads.Get(blob.digest);
  if (bytes == nullptr) bytes = state.handler.FindBlob(caller, blob.digest);
  if (bytes == nullptr) {
    return Refuse(
        v1::Refusal::REASON_BLOB_MISSING,
        absl::StrCat("blob ", blob.digest.Hex(), " is not here: upload it, then repeat the call"),
        "", blob.digest);
  }
  if (bytes->size() != blob.size)
    return Malformed("size", "is not the size of the blob with this digest");
  blob.bytes = std::move(bytes);
  return absl::OkStatus();
}

absl::Status HandleRegister(ServiceState& state, const fleet::Caller& caller,
                            const v1::RegisterRequest& message, Handle handle,
                            v1::RegisterReply* reply) {
  MACAW_ASSIGN_OR_RETURN(fleet::RegisterRequest request, FromWire(message));
  MACAW_RETURN_IF_ERROR(Resolve(state, caller, request.table));
  state.uploads.Claim(request.table.digest);
  state.handler.Register(caller, std::move(request),
                         ReplyTo<fleet::RegisterReply>(std::move(handle), reply));
  return absl::OkStatus();
}

// A message that is read faster than it is handed to another thread.
bool IsSmall(const v1::CommitRequest& message) {
  constexpr size_t kSmall = 64 << 10;
  return !message.has_part_blob() && message.ByteSizeLong() <= kSmall;
}

// How a lease goes out: with the blobs in it that its receiver does not have.
auto LeaseRule(const ServiceState& state, std::vector<Digest> have) {
  return [max_inline = state.options.max_inline_bytes, have = std::move(have),
          share = state.share](const auto& reply) {
    return ToWire(reply, InlineRule{max_inline, have, share});
  };
}

absl::Status HandleCommit(ServiceState& state, const fleet::Caller& caller,
                          v1::CommitRequest message, Handle handle, v1::CommitReply* reply) {
  Digest records;
  if (message.has_part_blob()) {
    MACAW_ASSIGN_OR_RETURN(fleet::Blob blob, FromWire(message.part_blob()));
    MACAW_RETURN_IF_ERROR(Resolve(state, caller, blob));
    if (blob.bytes == nullptr) return Malformed("part_blob", "has no name");
    records = blob.digest;
    const absl::Status parsed =
        ParsePartBlob(blob.bytes->bytes(), state.options.max_part_clients, message.mutable_part());
    if (!parsed.ok()) {
      state.uploads.Claim(records);  // never to be used again
      return parsed;
    }
  }
  MACAW_ASSIGN_OR_RETURN(fleet::CommitRequest request, FromWire(message));
  if (request.part.has_value()) {
    MACAW_RETURN_IF_ERROR(Resolve(state, caller, request.part->sums));
    // Only now that everything is at hand: a commit that has to be repeated finds what it has
    // uploaded.
    state.uploads.Claim(records);
    state.uploads.Claim(request.part->sums.digest);
  }
  request.ask_wait = std::min(request.ask_wait, state.options.max_poll);
  auto convert =
      LeaseRule(state, request.ask.has_value() ? request.ask->have : std::vector<Digest>());
  state.handler.Commit(caller, std::move(request),
                       ReplyTo<fleet::CommitReply>(std::move(handle), reply, std::move(convert)));
  return absl::OkStatus();
}

}  // namespace

ServiceState::ServiceState(const ServerOptions& server_options, fleet::FleetHandler& fleet_handler)
    : options(server_options),
      share(options.share_memory && IsPrivate(options.listen)),
      handler(fleet_handler),
      uploads({.max_blob_bytes = options.max_blob_bytes,
               .budget_bytes = options.upload_budget_bytes,
               .verify = !IsPrivate(options.listen)},
              SteadyClock(), executor),
      executor("wire", 2) {}

fleet::Caller CallerOf(const ServiceState& state, const grpc::CallbackServerContext& context) {
  if (!state.options.identify) return {};
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(kTokenKey);
  if (token == metadata.end()) return state.options.identify("");
  return state.options.identify({token->second.data(), token->second.size()});
}

grpc::ServerUnaryReactor* FleetService::Hello(Context* context, const v1::HelloRequest* message,
                                              v1::HelloReply* reply) {
  auto* call = new UnaryCall;
  const Handle handle(call);
  auto request = FromWire(*message);
  if (!request.ok()) {
    handle.Refuse(request.status());
  } else if (request->major != kProtocolMajor) {
    handle.Refuse(Refuse(
        v1::Refusal::REASON_VERSION,
        absl::StrCat("this server speaks version ", kProtocolMajor, " of the protocol, the caller ",
                     request->major, ": use programs of one release"),
        "major"));
  } else {
    state_->handler.Hello(
        CallerOf(*state_, *context), *std::move(request),
        ReplyTo<fleet::HelloReply>(handle, reply, [options = state_->options](fleet::HelloReply r) {
          r.major = kProtocolMajor;
          r.minor = kProtocolMinor;
          r.max_inline_bytes = options.max_inline_bytes;
          r.max_blob_bytes = options.max_blob_bytes;
          return ToWire(r);
        }));
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::Register(Context* context,
                                                 const v1::RegisterRequest* message,
                                                 v1::RegisterReply* reply) {
  auto* call = new UnaryCall;
  state_->executor.Post([state = state_.get(), caller = CallerOf(*state_, *context),
                         message = Take(message), handle = Handle(call), reply] {
    if (absl::Status status = HandleRegister(*state, caller, message, handle, reply); !status.ok())
      handle.Refuse(status);
  });
  return call;
}

grpc::ServerUnaryReactor* FleetService::Lease(Context* context, const v1::LeaseRequest* message,
                                              v1::LeaseReply* reply) {
  auto* call = new UnaryCall;
  const Handle handle(call);
  auto timed = FromWire(*message);
  if (!timed.ok()) {
    handle.Refuse(timed.status());
    return call;
  }
  auto convert = LeaseRule(*state_, timed->request.have);
  const Duration wait = std::min(timed->wait, state_->options.max_poll);
  state_->handler.Lease(CallerOf(*state_, *context), std::move(timed->request), wait,
                        ReplyTo<fleet::LeaseReply>(handle, reply, std::move(convert)));
  return call;
}

grpc::ServerUnaryReactor* FleetService::Heartbeat(Context* context,
                                                  const v1::HeartbeatRequest* message,
                                                  v1::HeartbeatReply* reply) {
  auto* call = new UnaryCall;
  const Handle handle(call);
  auto request = FromWire(*message);
  if (request.ok()) {
    state_->handler.Heartbeat(CallerOf(*state_, *context), *std::move(request),
                              ReplyTo<fleet::HeartbeatReply>(handle, reply));
  } else {
    handle.Refuse(request.status());
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::Release(Context* context, const v1::ReleaseRequest* message,
                                                v1::ReleaseReply* reply) {
  auto* call = new UnaryCall;
  const Handle handle(call);
  auto request = FromWire(*message);
  if (request.ok()) {
    state_->handler.Release(CallerOf(*state_, *context), *std::move(request),
                            ReplyTo<fleet::ReleaseReply>(handle, reply));
  } else {
    handle.Refuse(request.status());
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::Commit(Context* context, const v1::CommitRequest* message,
                                               v1::CommitReply* reply) {
  auto* call = new UnaryCall;
  const auto judge = [state = state_.get(), caller = CallerOf(*state_, *context),
                      handle = Handle(call), reply](v1::CommitRequest request) {
    if (absl::Status status = HandleCommit(*state, caller, std::move(request), handle, reply);
        !status.ok()) {
      handle.Refuse(status);
    }
  };
  if (IsSmall(*message)) {
    judge(Take(message));
  } else {
    state_->executor.Post(
        [judge, message = Take(message)]() mutable { judge(std::move(message)); });
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::BeginUpload(Context* context,
                                                    const v1::BeginUploadRequest* message,
                                                    v1::BeginUploadReply* reply) {
  auto* call = new UnaryCall;
  const Handle handle(call);
  const auto answer = [handle, reply](UploadAnswer a) {
    handle.End([&] { return *reply = ToWire(a), absl::OkStatus(); });
  };
  const auto request = FromWire(*message);
  if (!request.ok()) {
    handle.Refuse(request.status());
    return call;
  }
  const fleet::Caller caller = CallerOf(*state_, *context);
  const fleet::UploadOffer offer = request->offer;
  if (offer.size > state_->options.max_blob_bytes) {
    answer({UploadVerdict::kTooLarge});
    return call;
  }
  // Records are parsed where they lie, so they are brought here first.
  const bool records = request->purpose == v1::BeginUploadRequest::PURPOSE_RECORDS;
  if (records && offer.size > MaxPartBlobBytes(state_->options.max_part_clients)) {
    answer({UploadVerdict::kTooLarge});
    return call;
  }
  const auto place = state_->share && !records ? request->place : std::nullopt;
  const auto begin = [offer, place, answer](ServiceState* state) {
    state->executor.Post([state, offer, place, answer] {
      std::shared_ptr<const AlignedBuffer> mapped;
      if (place.has_value())
        mapped = AlignedBuffer::Map(*place, offer.digest, offer.size).value_or(nullptr);
      const UploadStore::Begun begun =
          state->uploads.Begin(offer.digest, offer.size, std::move(mapped));
      answer({begun.verdict, begun.offset});
    });
  };
  if (records) {
    begin(state_.get());  // how a commit is packed is no concern of the handler's
    return call;
  }
  // The reply holds the state: it may be called when the server has gone, and then finds the call
  // over.
  state_->handler.Offer(
      caller, offer,
      fleet::AnswerOnce<UploadVerdict>([state = state_, caller, handle, offer, begin,
                                        answer](absl::StatusOr<UploadVerdict> verdict) {
        if (handle.over()) return;
        if (!verdict.ok()) return handle.Refuse(verdict.status());
        const bool found = *verdict == UploadVerdict::kHave &&
                           state->handler.FindBlob(caller, offer.digest) != nullptr;
        if (*verdict == UploadVerdict::kSend || (*verdict == UploadVerdict::kHave && !found))
          return begin(state.get());
        answer({*verdict});
      }));
  return call;
}

}  // namespace macaw::wire
