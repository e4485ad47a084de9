#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/fleet/caller.h"
#include "proto/fleet/messages.h"

namespace macaw::fleet {

// Answers a call once, from any thread, now or later. A handler that goes away first must answer
// with an error.
template <typename T>
using Reply = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

// The server's side of the API, free of gRPC. Methods are called on RPC threads, many at once, and
// must return at once: validate, post, answer later. Blobs in requests have arrived whole and match
// their digests. `caller` is who the transport found it to be; what it may do is for the handler to
// say.
class FleetHandler {
 public:
  virtual ~FleetHandler() = default;
  virtual void Hello(const Caller& caller, HelloRequest request, Reply<HelloReply> reply) = 0;
  virtual void Register(const Caller& caller, RegisterRequest request,
                        Reply<RegisterReply> reply) = 0;
  // May be answered after up to `wait`; the caller's connection may be gone by then, which the
  // answer survives.
  virtual void Lease(const Caller& caller, LeaseRequest request, Duration wait,
                     Reply<LeaseReply> reply) = 0;
  virtual void Heartbeat(const Caller& caller, HeartbeatRequest request,
                         Reply<HeartbeatReply> reply) = 0;
  // Where it asks for work, the answer may come as late as a lease's.
  virtual void Commit(const Caller& caller, CommitRequest request, Reply<CommitReply> reply) = 0;
  virtual void Release(const Caller& caller, ReleaseRequest request, Reply<ReleaseReply> reply) = 0;
  // kNotNeeded: that commit has been accepted already. kTooLarge: no blob of this purpose is as
  // large.
  virtual void Offer(const Caller& caller, UploadOffer offer, Reply<UploadVerdict> reply) = 0;
  // Whether this session is open, whoever asks. Answers at once: a call in any other is turned down
  // unread, and what has been uploaded in it is dropped.
  virtual bool Knows(SessionId session) const = 0;
  // A blob that a lease has named, or null when it is no longer served, or not to this caller.
  virtual std::shared_ptr<const AlignedBuffer> FindBlob(const Caller& caller,
                                                        const Digest& digest) = 0;
};

// The worker's side: blocking calls, each with a deadline of the link's own. Thread-safe. Errors:
// kUnavailable (no connection: try again), kDeadlineExceeded (maybe carried out: Commit may be
// repeated, its id makes that harmless), anything else is an answer.
class FleetLink {
 public:
  virtual ~FleetLink() = default;
  virtual absl::StatusOr<HelloReply> Hello(const HelloRequest& request) = 0;
  virtual absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) = 0;
  virtual absl::StatusOr<LeaseReply> Lease(const LeaseRequest& request, Duration wait) = 0;
  virtual absl::StatusOr<HeartbeatReply> Heartbeat(const HeartbeatRequest& request) = 0;
  virtual absl::StatusOr<CommitReply> Commit(
      const CommitRequest& request) = 0;  // moves large blobs first
  virtual absl::StatusOr<ReleaseReply> Release(const ReleaseRequest& request) = 0;
  // The blob's bytes: at once when they came inline, else downloaded and checked against the
  // digest.
  virtual absl::StatusOr<Blob> Fetch(const Blob& blob) = 0;
  // Wakes every blocked call with kCancelled, now and from now on.
  virtual void Shutdown() = 0;
  // Pieces of blobs that have come or gone so far: grows while a call moves one.
  virtual uint64_t moved() const { return 0; }
};

}  // namespace macaw::fleet
