#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/fleet/caller.h"
#include "proto/fleet/messages.h"

namespace macaw::fleet {

// CALL(Name) for each call NameRequest → NameReply, for what treats them alike. A plain call is one
// in a session that needs nothing but its request and is answered at once; the wire serves it
// without a line of its own.
#define MACAW_FLEET_CALLS(CALL) \
  CALL(Hello) CALL(Register) CALL(Lease) CALL(Commit) MACAW_FLEET_PLAIN_CALLS(CALL)
#define MACAW_FLEET_PLAIN_CALLS(CALL) CALL(Heartbeat) CALL(Release)

// How long the answer to a request may take beyond that of any other call.
template <typename Request>
Duration PatienceOf(const Request& request) {
  if constexpr (requires { request.wait; }) return request.wait;
  if constexpr (requires { request.ask->wait; }) {
    if (request.ask.has_value()) return request.ask->wait;
  }
  return {};
}

// Answers one call, exactly once, from any thread, at any time. A handler that is destroyed before
// it has answered must answer with an error first.
template <typename T>
using Reply = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

// The server's side of the API, free of gRPC. Methods are called on RPC threads, many at once, and
// must return at once: check the request, post it, answer later. Blobs in requests have arrived
// whole and match their digests. `caller` is the caller that the transport identified; the handler
// decides what this caller may do.
class FleetHandler {
 public:
  virtual ~FleetHandler() = default;
  virtual void Hello(const Caller& caller, HelloRequest request, Reply<HelloReply> reply) = 0;
  virtual void Register(const Caller& caller, RegisterRequest request,
                        Reply<RegisterReply> reply) = 0;
  // May be answered up to `wait` later. The connection may be closed by then; answering is still
  // safe.
  virtual void Lease(const Caller& caller, LeaseRequest request, Reply<LeaseReply> reply) = 0;
  virtual void Heartbeat(const Caller& caller, HeartbeatRequest request,
                         Reply<HeartbeatReply> reply) = 0;
  // If the request asks for work, the answer may take as long as the answer to Lease.
  virtual void Commit(const Caller& caller, CommitRequest request, Reply<CommitReply> reply) = 0;
  virtual void Release(const Caller& caller, ReleaseRequest request, Reply<ReleaseReply> reply) = 0;
  // kNotNeeded: that commit has already been accepted. kTooLarge: no blob of this purpose can be
  // that large.
  virtual void Offer(const Caller& caller, UploadOffer offer, Reply<UploadVerdict> reply) = 0;
  // Whether this session is open, for any caller. Must answer at once. A call in a session that is
  // not open is refused before it is parsed, and the uploads of that session are dropped.
  virtual bool Knows(SessionId session) const = 0;
  // A blob that a lease has named. Null when it is no longer served, or when this caller may not
  // have it.
  virtual std::shared_ptr<const AlignedBuffer> FindBlob(const Caller& caller,
                                                        const Digest& digest) = 0;
  // A download of the caller waits for its turn (wire/download_turns.h), and the caller has waited
  // for so long since it was said last.
  virtual void Waited(const Caller& caller, Duration time) = 0;
};

// Bytes that were moved over a link.
struct Traffic {
  uint64_t up = 0, down = 0;
};

// The worker's side: blocking calls, each with a deadline that the link sets. Thread-safe.
// kUnavailable: no connection, try again. kDeadlineExceeded: the server may have carried out the
// call; a Commit may be repeated, since its id makes that harmless. Any other error is the server's
// answer.
class FleetLink {
 public:
  virtual ~FleetLink() = default;
  virtual absl::StatusOr<HelloReply> Hello(const HelloRequest& request) = 0;
  virtual absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) = 0;
  virtual absl::StatusOr<LeaseReply> Lease(const LeaseRequest& request) = 0;
  virtual absl::StatusOr<HeartbeatReply> Heartbeat(const HeartbeatRequest& request) = 0;
  virtual absl::StatusOr<CommitReply> Commit(
      const CommitRequest& request) = 0;  // uploads large blobs first
  virtual absl::StatusOr<ReleaseReply> Release(const ReleaseRequest& request) = 0;
  // Returns the blob with its bytes: at once if they came inline, else after downloading them and
  // checking the digest.
  virtual absl::StatusOr<Blob> Fetch(const Blob& blob) = 0;
  // Ends every blocked call, and every later call, with kCancelled.
  virtual void Shutdown() = 0;
  // Number of blob chunks moved so far, in both directions. Grows while a call moves a blob.
  virtual uint64_t moved() const { return 0; }
  // Bytes of messages and blobs that were sent and received so far, also those that had to be sent
  // again. Does not count what TLS, HTTP/2 and TCP add.
  virtual Traffic traffic() const { return {}; }
  // Whether the server maps this process's large blobs, so that their size costs nothing.
  virtual bool shares_memory() const { return false; }
};

}  // namespace macaw::fleet
