#include "proto/wire/service.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/hash/hash.h"
#include "core/status.h"
#include "proto/fleet/once.h"
#include "proto/wire/address.h"
#include "proto/wire/lease_answer.h"
#include "proto/wire/limits.h"
#include "proto/wire/outline.h"
#include "proto/wire/part_blob.h"
#include "proto/wire/service_requests.h"
#include "proto/wire/shared_memory.h"

namespace macaw::wire {
namespace {

using fleet::BlobPurpose;
using fleet::UploadVerdict;
using Handle = UnaryCall::Handle;

// A plain call (link.h): checked, parsed, and passed to the handler if its session is open.
template <typename Request, typename Answer>
UnaryCall* ServePlain(ServiceState& state, const grpc::CallbackServerContext& context,
                      const grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply,
                      void (fleet::FleetHandler::*method)(const fleet::Caller&, Request,
                                                          fleet::Reply<Answer>)) {
  using Message = decltype(ToWire(std::declval<Request>()));
  auto* call = new UnaryCall(state.answers);
  bool known = false;
  const auto message = ParseKnown<Message>(state, bytes, known);
  auto request = message.ok() ? FromWire(*message) : message.status();
  auto answer = ReplyTo<Answer>(Handle(call), reply);
  if (!request.ok()) {
    std::move(answer)(request.status());
  } else if (!known) {
    std::move(answer)(Answer::OfUnknownSession());
  } else {
    (state.handler.*method)(*CallerOf(state, context), *std::move(request), std::move(answer));
  }
  return call;
}

// Leaves its place before it answers, so that a node that has its answer may come again.
absl::Status HandleRegister(ServiceState& state, const fleet::Caller& caller,
                            const grpc::ByteBuffer& bytes, Intake::Place& place, Handle handle,
                            grpc::ByteBuffer* reply) {
  const absl::Cleanup leave = [&place] { place.Leave(); };
  MACAW_ASSIGN_OR_RETURN(const auto message, ParseMessage<v1::RegisterRequest>(bytes));
  MACAW_ASSIGN_OR_RETURN(fleet::RegisterRequest request, FromWire(message));
  const SessionId own = CallerNumber(caller);
  MACAW_RETURN_IF_ERROR(ResolveBlob(state, caller, own, BlobPurpose::kPopulation, request.table));
  state.uploads.Claim(own, BlobPurpose::kPopulation, request.table.digest);
  place.Leave();
  state.handler.Register(caller, std::move(request),
                         ReplyTo<fleet::RegisterReply>(std::move(handle), reply));
  return absl::OkStatus();
}

}  // namespace

ServiceState::ServiceState(const ServerOptions& server_options, std::shared_ptr<Gate> server_gate,
                           std::unique_ptr<PartialFiles> partials,
                           fleet::FleetHandler& fleet_handler)
    : options(server_options),
      share(options.share_memory && IsPrivate(options.listen)),
      inline_bytes(IsPrivate(options.listen) ? InlineBytes::kTrust : InlineBytes::kVerify),
      max_inline(IsPrivate(options.listen)
                     ? options.max_inline_bytes
                     : std::min(options.max_inline_bytes, kMaxInlineBytesOnTcp)),
      gate(std::move(server_gate)),
      handler(fleet_handler),
      uploads(
          {.max_blob_bytes = options.max_blob_bytes,
           .budget_bytes = options.upload_budget_bytes,
           .population_budget_bytes = options.population_budget_bytes,
           .verify = !IsPrivate(options.listen)},
          [this](SessionId session) { return handler.Knows(session); }, SteadyClock(), executor,
          std::move(partials)),
      downloads(options.downloads, SteadyClock()),
      turns(options.turns, SteadyClock()),
      registrations(options.intake_bytes / 4),
      commits(options.intake_bytes),
      executor("wire", 2) {}

SessionId CallerNumber(const fleet::Caller& caller) {
  return SessionId(caller.node.empty() ? 0 : absl::Hash<std::string>()(caller.node) | 1);
}

fleet::CallerPtr CallerOf(const ServiceState& state, const grpc::CallbackServerContext& context) {
  static const auto anybody = std::make_shared<const fleet::Caller>();
  static const auto stranger =
      std::make_shared<const fleet::Caller>(fleet::Caller{.role = fleet::Role::kStranger});
  if (state.gate != nullptr)
    return state.gate->Identify(*context.auth_context()).value_or(stranger);
  if (!state.options.identify) return anybody;
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(kTokenKey);
  if (token == metadata.end()) return state.options.identify("");
  return state.options.identify({token->second.data(), token->second.size()});
}

grpc::ServerUnaryReactor* FleetService::Hello(Context* context, const grpc::ByteBuffer* bytes,
                                              grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  const auto message = ParseMessage<v1::HelloRequest>(*bytes);
  auto request = message.ok() ? FromWire(*message) : message.status();
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
        *CallerOf(*state_, *context), *std::move(request),
        ReplyTo<fleet::HelloReply>(handle, reply,
                                   [most_inline = state_->options.max_inline_bytes,
                                    most = state_->options.max_blob_bytes](fleet::HelloReply r) {
                                     r.major = kProtocolMajor;
                                     r.minor = kProtocolMinor;
                                     r.max_inline_bytes = most_inline;
                                     r.max_blob_bytes = most;
                                     return ToWire(r);
                                   }));
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::Register(Context* context, const grpc::ByteBuffer* bytes,
                                                 grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  const auto outline =
      ReadOutline(*v1::RegisterRequest::descriptor(), *bytes, MostObjects(state_->options));
  const fleet::CallerPtr caller = CallerOf(*state_, *context);
  auto place = state_->registrations.Enter(CallerNumber(*caller), bytes->Length());
  if (!outline.ok()) {
    handle.Refuse(outline.status());
  } else if (place == nullptr) {
    handle.Refuse(RefuseBusy("a registration of this node is being read, or many of others"));
  } else {
    state_->executor.Post([state = state_.get(), caller, bytes = TakeRequest(bytes),
                           place = std::move(place), handle, reply] {
      const absl::Status status = HandleRegister(*state, *caller, bytes, *place, handle, reply);
      if (!status.ok()) handle.Refuse(status);
    });
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::Lease(Context* context, const grpc::ByteBuffer* bytes,
                                              grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  bool known = false;
  const auto message = ParseKnown<v1::LeaseRequest>(*state_, *bytes, known);
  auto request = message.ok() ? FromWire(*message) : message.status();
  if (!request.ok()) {
    handle.Refuse(request.status());
    return call;
  }
  auto convert = LeaseRule(*state_, request->have);
  const fleet::CallerPtr caller = CallerOf(*state_, *context);
  auto answer = ReplyTo<fleet::LeaseReply>(
      handle, reply, std::move(convert),
      [&handler = state_->handler, caller, session = request->session](
          const fleet::LeaseReply& lease) { GiveBackLease(handler, *caller, session, lease); });
  if (!known) {
    std::move(answer)(fleet::LeaseReply::OfUnknownSession());
  } else {
    request->wait = std::min(request->wait, state_->options.max_poll);
    state_->handler.Lease(*caller, *std::move(request), std::move(answer));
  }
  return call;
}

#define MACAW_SERVE(Name)                                                                       \
  grpc::ServerUnaryReactor* FleetService::Name(Context* context, const grpc::ByteBuffer* bytes, \
                                               grpc::ByteBuffer* reply) {                       \
    return ServePlain(*state_, *context, *bytes, reply, &fleet::FleetHandler::Name);            \
  }
MACAW_FLEET_PLAIN_CALLS(MACAW_SERVE)
#undef MACAW_SERVE

grpc::ServerUnaryReactor* FleetService::BeginUpload(Context* context, const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  const auto answer = [handle, reply](fleet::UploadAnswer a) {
    handle.End([&] { return WriteMessage(ToWire(a), reply), absl::OkStatus(); });
  };
  const auto message = ParseMessage<v1::BeginUploadRequest>(*bytes);
  const auto request = message.ok() ? FromWire(*message) : message.status();
  if (!request.ok()) {
    handle.Refuse(request.status());
    return call;
  }
  const fleet::CallerPtr caller = CallerOf(*state_, *context);
  fleet::UploadOffer offer = *request;
  const bool population = offer.purpose == BlobPurpose::kPopulation;
  const bool records = offer.purpose == BlobPurpose::kRecords;
  if (population) offer.session = {};
  if (!population && !state_->handler.Knows(offer.session)) {
    answer({UploadVerdict::kStale});
    return call;
  }
  if (offer.size > state_->options.max_blob_bytes ||
      (records && offer.size > MaxPartBlobBytes(state_->options.max_part_clients))) {
    answer({UploadVerdict::kTooLarge});
    return call;
  }
  // Only sums are mapped. Records are parsed in place, and the digest of the population is always
  // checked.
  const bool sums = offer.purpose == BlobPurpose::kSums;
  const auto place = state_->share && sums ? request->place : std::nullopt;
  fleet::UploadOffer kept = offer;
  if (population) kept.session = CallerNumber(*caller);
  const auto begin = [kept, place, answer](ServiceState* state) {
    state->executor.Post([state, kept, place, answer] {
      std::shared_ptr<const AlignedBuffer> mapped;
      if (place.has_value()) mapped = MapShared(*place, kept.digest, kept.size).value_or(nullptr);
      const UploadStore::Begun begun = state->uploads.Begin(kept, std::move(mapped));
      answer({begun.verdict, begun.offset});
    });
  };
  // The reply keeps the state alive. It may be called after the server has gone; the call is then
  // over.
  state_->handler.Offer(
      *caller, offer,
      fleet::AnswerOnce<UploadVerdict>([state = state_, caller, handle, offer, begin,
                                        answer](absl::StatusOr<UploadVerdict> verdict) {
        if (handle.over()) return;
        if (!verdict.ok()) return handle.Refuse(verdict.status());
        const bool found = *verdict == UploadVerdict::kHave &&
                           offer.purpose == BlobPurpose::kPopulation &&
                           state->handler.FindBlob(*caller, offer.digest) != nullptr;
        if (*verdict == UploadVerdict::kSend || (*verdict == UploadVerdict::kHave && !found))
          return begin(state.get());
        answer({*verdict});
      }));
  return call;
}

}  // namespace macaw::wire
