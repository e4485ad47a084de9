#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"
#include "proto/wire/lease_answer.h"
#include "proto/wire/part_blob.h"
#include "proto/wire/service_requests.h"
#include "proto/wire/shared_memory.h"
#include "proto/wire/unary_call.h"

// The call that brings a part: its blobs are found or mapped, and only then claimed. One commit of
// a session is worked on at a time; large ones are parsed on the executor.
namespace macaw::wire {
namespace {

using fleet::BlobPurpose;

// Maps sums whose sender only says where they lie. If that fails, or there is no room for them,
// ResolveBlob will not find them, and the sender uploads them.
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

// A message of this size is parsed faster than it is passed to another thread.
constexpr size_t kSmallCommit = 64 << 10;

absl::Status HandleCommit(ServiceState& state, const fleet::CallerPtr& caller,
                          v1::CommitRequest message, std::shared_ptr<Intake::Place> place,
                          UnaryCall::Handle handle, grpc::ByteBuffer* reply) {
  const SessionId session(message.session());
  Digest records;
  if (message.has_part_blob()) {
    MACAW_ASSIGN_OR_RETURN(fleet::Blob blob, FromWire(message.part_blob(), state.inline_bytes));
    MACAW_RETURN_IF_ERROR(ResolveBlob(state, *caller, session, BlobPurpose::kRecords, blob));
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
    MACAW_RETURN_IF_ERROR(ResolveBlob(state, *caller, session, BlobPurpose::kSums, sums));
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
        if (unheard.lease.has_value()) GiveBackLease(handler, *caller, session, *unheard.lease);
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

grpc::ServerUnaryReactor* FleetService::Commit(Context* context, const grpc::ByteBuffer* bytes,
                                               grpc::ByteBuffer* reply) {
  auto* call = new UnaryCall(state_->answers);
  const UnaryCall::Handle handle(call);
  const auto session = SessionIn<v1::CommitRequest>(*state_, *bytes);
  if (!session.ok()) {
    handle.Refuse(session.status());
    return call;
  }
  if (!state_->handler.Knows(*session)) {
    handle.End([&] {
      WriteMessage(ToWire(fleet::CommitReply::OfUnknownSession()), reply);
      return absl::OkStatus();
    });
    return call;
  }
  auto place = state_->commits.Enter(*session, bytes->Length());
  if (place == nullptr) {
    handle.Refuse(RefuseBusy("a commit of this session is being worked on, or many of others"));
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
    state_->executor.Post([judge = std::move(judge), bytes = TakeRequest(bytes)]() mutable {
      judge(ParseMessage<v1::CommitRequest>(bytes));
    });
    return call;
  }
  auto message = ParseMessage<v1::CommitRequest>(TakeRequest(bytes));
  if (message.ok() && message->has_part_blob()) {
    state_->executor.Post([judge = std::move(judge), message = std::move(message)]() mutable {
      judge(std::move(message));
    });
  } else {
    judge(std::move(message));
  }
  return call;
}

}  // namespace macaw::wire
