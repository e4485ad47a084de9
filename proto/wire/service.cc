#include "proto/wire/service.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/hash/hash.h"
#include "core/status.h"
#include "proto/fleet/once.h"
#include "proto/wire/address.h"
#include "proto/wire/limits.h"
#include "proto/wire/outline.h"
#include "proto/wire/part_blob.h"
#include "proto/wire/shared_memory.h"

namespace macaw::wire {
namespace {

using fleet::BlobPurpose;
using fleet::UploadVerdict;
using Handle = UnaryCall::Handle;

template <typename Message>
void Write(const Message& message, grpc::ByteBuffer* to) {
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, to, &own);
}

// Gives back work whose worker will never get the answer.
void GiveBack(fleet::FleetHandler& handler, const fleet::Caller& caller, SessionId session,
              const fleet::LeaseReply& lease) {
  fleet::ReleaseRequest request{.session = session};
  if (lease.training.has_value()) {
    for (const fleet::Assignment& assignment : lease.training->assignments)
      request.attempts.push_back({assignment.client, assignment.fence});
  }
  if (lease.evaluation.has_value()) {
    for (const fleet::EvaluationTask& task : lease.evaluation->tasks)
      request.tasks.push_back(task.fence);
  }
  if (request.attempts.empty() && request.tasks.empty()) return;
  handler.Release(caller, std::move(request), [](const absl::StatusOr<fleet::ReleaseReply>&) {});
}

// Ends the RPC with the handler's answer; `convert` makes the message. `unheard` gets an answer
// that comes after the caller has gone.
template <typename T, typename Convert, typename Unheard>
fleet::Reply<T> ReplyTo(Handle handle, grpc::ByteBuffer* response, Convert convert,
                        Unheard unheard) {
  return fleet::AnswerOnce<T>([handle, response, convert = std::move(convert),
                               unheard = std::move(unheard)](absl::StatusOr<T> answer) {
    const bool heard = handle.End([&]() -> absl::Status {
      if (!answer.ok()) return answer.status();
      Write(convert(*answer), response);
      return absl::OkStatus();
    });
    if (!heard && answer.ok()) unheard(*answer);
  });
}

template <typename T, typename Convert>
fleet::Reply<T> ReplyTo(Handle handle, grpc::ByteBuffer* response, Convert convert) {
  return ReplyTo<T>(std::move(handle), response, std::move(convert), [](const T&) {});
}

template <typename T>
fleet::Reply<T> ReplyTo(Handle handle, grpc::ByteBuffer* response) {
  return ReplyTo<T>(std::move(handle), response, [](const T& value) { return ToWire(value); });
}

// Takes the request without a copy. gRPC frees its request after the RPC has ended, which may
// happen at any moment, while the executor may still be reading. The object itself is not const;
// gRPC only passes it as const.
template <typename Message>
Message Take(const Message* request) {
  return std::move(*const_cast<Message*>(request));
}

// More entries than any request needs: a client or an evaluation task is a few entries.
uint64_t MostObjects(const ServerOptions& options) {
  constexpr uint64_t kMostOfTasks = 1 << 17;
  return kMostOfTasks + 4 * std::min(options.max_part_clients, uint64_t{1} << 32);
}

template <typename Message>
absl::StatusOr<SessionId> SessionIn(const ServiceState& state, const grpc::ByteBuffer& bytes) {
  MACAW_ASSIGN_OR_RETURN(const Outline outline,
                         ReadOutline(*Message::descriptor(), bytes, MostObjects(state.options)));
  return outline.session;
}

template <typename Message>
absl::StatusOr<Message> Parse(grpc::ByteBuffer bytes) {
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok())
    return Malformed(Message::descriptor()->name(), "is not a message of this type");
  return message;
}

// Parses a request in a session only after it is known that the session is open.
template <typename Message>
absl::StatusOr<Message> ParseKnown(const ServiceState& state, const grpc::ByteBuffer& bytes,
                                   bool& known) {
  MACAW_ASSIGN_OR_RETURN(const SessionId session, SessionIn<Message>(state, bytes));
  known = state.handler.Knows(session);
  return known ? Parse<Message>(bytes) : Message();
}

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

absl::Status Busy(absl::string_view why) {
  return Refuse(v1::Refusal::REASON_BUSY, absl::StrCat(why, ": repeat the call"));
}

// Fills in the bytes of a blob of which only the digest came: a blob that this session has uploaded
// for this purpose.
absl::Status Resolve(ServiceState& state, const fleet::Caller& caller, SessionId session,
                     fleet::BlobPurpose purpose, fleet::Blob& blob) {
  if (!blob.named() || blob.bytes != nullptr) return absl::OkStatus();
  auto bytes = state.uploads.Get(session, purpose, blob.digest);
  if (bytes == nullptr && purpose == fleet::BlobPurpose::kPopulation)
    bytes = state.handler.FindBlob(caller, blob.digest);
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

// Maps sums whose sender only says where they lie. If that fails, or there is no room for them,
// Resolve will not find them, and the sender uploads them.
void MapSums(ServiceState& state, SessionId session, uint64_t commit_id, const fleet::Part& part) {
  const fleet::Blob& sums = part.sums;
  if (!state.share || !sums.place.has_value() || sums.size > state.options.max_blob_bytes) return;
  if (state.uploads.Get(session, BlobPurpose::kSums, sums.digest) != nullptr) return;
  auto mapped = MapShared(*sums.place, sums.digest, sums.size);
  if (!mapped.ok()) return;
  state.uploads.Begin({.purpose = BlobPurpose::kSums,
                       .session = session,
                       .digest = sums.digest,
                       .size = sums.size,
                       .round = part.round,
                       .commit_id = commit_id},
                      *std::move(mapped));
}

// Leaves its place before it answers, so that a node that has its answer may come again.
absl::Status HandleRegister(ServiceState& state, const fleet::Caller& caller,
                            const grpc::ByteBuffer& bytes, Intake::Place& place, Handle handle,
                            grpc::ByteBuffer* reply) {
  const absl::Cleanup leave = [&place] { place.Leave(); };
  MACAW_ASSIGN_OR_RETURN(const auto message, Parse<v1::RegisterRequest>(bytes));
  MACAW_ASSIGN_OR_RETURN(fleet::RegisterRequest request, FromWire(message));
  const SessionId own = CallerNumber(caller);
  MACAW_RETURN_IF_ERROR(Resolve(state, caller, own, BlobPurpose::kPopulation, request.table));
  state.uploads.Claim(own, BlobPurpose::kPopulation, request.table.digest);
  place.Leave();
  state.handler.Register(caller, std::move(request),
                         ReplyTo<fleet::RegisterReply>(std::move(handle), reply));
  return absl::OkStatus();
}

// A message of this size is parsed faster than it is passed to another thread.
constexpr size_t kSmallCommit = 64 << 10;

// How a lease is sent: with the blobs that its receiver does not have.
auto LeaseRule(const ServiceState& state, std::vector<Digest> have) {
  return [max_inline = state.max_inline, have = std::move(have),
          share = state.share](const auto& reply) {
    return ToWire(reply, InlineRule{max_inline, have, share});
  };
}

absl::Status HandleCommit(ServiceState& state, const fleet::CallerPtr& caller,
                          v1::CommitRequest message, std::shared_ptr<Intake::Place> place,
                          Handle handle, grpc::ByteBuffer* reply) {
  const SessionId session(message.session());
  Digest records;
  if (message.has_part_blob()) {
    MACAW_ASSIGN_OR_RETURN(fleet::Blob blob, FromWire(message.part_blob(), state.inline_bytes));
    MACAW_RETURN_IF_ERROR(Resolve(state, *caller, session, BlobPurpose::kRecords, blob));
    if (blob.bytes == nullptr) return Malformed("part_blob", "has no name");
    records = blob.digest;
    absl::Status parsed =
        ParsePartBlob(blob.bytes->bytes(), state.options.max_part_clients, message.mutable_part());
    if (!parsed.ok()) {
      state.uploads.Claim(session, BlobPurpose::kRecords, records);  // not needed again
      return parsed;
    }
  }
  MACAW_RETURN_IF_ERROR(CheckClients(message.part(), state.options.max_part_clients));
  MACAW_ASSIGN_OR_RETURN(fleet::CommitRequest request, FromWire(message, state.inline_bytes));
  if (request.part.has_value()) {
    fleet::Blob& sums = request.part->sums;
    MapSums(state, session, request.commit_id, *request.part);
    MACAW_RETURN_IF_ERROR(Resolve(state, *caller, session, BlobPurpose::kSums, sums));
    // Claims the blobs only now that all of them are here: a commit that has to be repeated still
    // finds what it has uploaded.
    state.uploads.Claim(session, BlobPurpose::kRecords, records);
    state.uploads.Claim(session, BlobPurpose::kSums, sums.digest);
  }
  std::vector<Digest> have;
  if (request.ask.has_value()) {
    request.ask->wait = std::min(request.ask->wait, state.options.max_poll);
    have = request.ask->have;
  }
  auto convert = LeaseRule(state, std::move(have));
  auto answer = ReplyTo<fleet::CommitReply>(
      std::move(handle), reply, std::move(convert),
      [&handler = state.handler, caller, session](const fleet::CommitReply& unheard) {
        if (unheard.lease.has_value()) GiveBack(handler, *caller, session, *unheard.lease);
      });
  // The commit is judged when it is answered, or when the handler has released it. Then the next
  // one may come.
  auto leave = [place = std::weak_ptr(place),
                answer = std::move(answer)](absl::StatusOr<fleet::CommitReply> judged) mutable {
    if (const auto held = place.lock()) held->Leave();
    std::move(answer)(std::move(judged));
  };
  request.hold = std::move(place);
  state.handler.Commit(*caller, std::move(request), std::move(leave));
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
  const auto message = Parse<v1::HelloRequest>(*bytes);
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
    handle.Refuse(Busy("a registration of this node is being read, or many of others"));
  } else {
    state_->executor.Post([state = state_.get(), caller, bytes = Take(bytes),
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
          const fleet::LeaseReply& lease) { GiveBack(handler, *caller, session, lease); });
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

grpc::ServerUnaryReactor* FleetService::Commit(Context* context, const grpc::ByteBuffer* bytes,
                                               grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  const auto session = SessionIn<v1::CommitRequest>(*state_, *bytes);
  if (!session.ok()) {
    handle.Refuse(session.status());
    return call;
  }
  if (!state_->handler.Knows(*session)) {
    handle.End([&] {
      Write(ToWire(fleet::CommitReply::OfUnknownSession()), reply);
      return absl::OkStatus();
    });
    return call;
  }
  auto place = state_->commits.Enter(*session, bytes->Length());
  if (place == nullptr) {
    handle.Refuse(Busy("a commit of this session is being worked on, or many of others"));
    return call;
  }
  auto judge = [state = state_.get(), caller = CallerOf(*state_, *context), handle, reply,
                place = std::move(place)](absl::StatusOr<v1::CommitRequest> message) mutable {
    const absl::Status status = message.ok() ? HandleCommit(*state, caller, *std::move(message),
                                                            std::move(place), handle, reply)
                                             : message.status();
    if (!status.ok()) handle.Refuse(status);
  };
  if (bytes->Length() > kSmallCommit) {
    state_->executor.Post([judge = std::move(judge), bytes = Take(bytes)]() mutable {
      judge(Parse<v1::CommitRequest>(bytes));
    });
    return call;
  }
  auto message = Parse<v1::CommitRequest>(Take(bytes));
  if (message.ok() && message->has_part_blob()) {
    state_->executor.Post([judge = std::move(judge), message = std::move(message)]() mutable {
      judge(std::move(message));
    });
  } else {
    judge(std::move(message));
  }
  return call;
}

grpc::ServerUnaryReactor* FleetService::BeginUpload(Context* context, const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const Handle handle(call);
  const auto answer = [handle, reply](fleet::UploadAnswer a) {
    handle.End([&] { return Write(ToWire(a), reply), absl::OkStatus(); });
  };
  const auto message = Parse<v1::BeginUploadRequest>(*bytes);
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
