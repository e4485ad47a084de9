#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/ids.h"
#include "core/status.h"
#include "proto/wire/outline.h"
#include "proto/wire/service.h"

// How a request's bytes become a message, once they are known to be small enough and of an open
// session, and how its blobs are found. Errors are refusals with a reason (refusal.h). Any thread.
namespace macaw::wire {

// Takes the request without a copy. gRPC frees its request after the RPC has ended, which may
// happen at any moment, while the executor may still be reading. The object itself is not const;
// gRPC only passes it as const.
template <typename Message>
Message TakeRequest(const Message* request) {
  return std::move(*const_cast<Message*>(request));
}

// More entries than any request needs: a client or an evaluation task is a few entries.
uint64_t MostObjects(const ServerOptions& options);

// The session that a request names. Refuses bytes with more entries than MostObjects.
template <typename Message>
absl::StatusOr<SessionId> SessionIn(const ServiceState& state, const grpc::ByteBuffer& bytes) {
  MACAW_ASSIGN_OR_RETURN(const Outline outline,
                         ReadOutline(*Message::descriptor(), bytes, MostObjects(state.options)));
  return outline.session;
}

template <typename Message>
absl::StatusOr<Message> ParseMessage(grpc::ByteBuffer bytes) {
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
  return known ? ParseMessage<Message>(bytes) : Message();
}

// REASON_BUSY: the caller repeats the call.
absl::Status RefuseBusy(absl::string_view why);

// Fills in the bytes of a blob of which only the digest came: a blob that this session has uploaded
// for this purpose.
absl::Status ResolveBlob(ServiceState& state, const fleet::Caller& caller, SessionId session,
                         fleet::BlobPurpose purpose, fleet::Blob& blob);

}  // namespace macaw::wire
