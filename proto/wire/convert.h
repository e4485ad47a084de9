#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "macaw/v1/fleet.pb.h"
#include "proto/fleet/messages.h"

// Conversion between the plain structs and the messages of the wire. ToWire cannot fail. FromWire
// is safe for any message: it accepts the message, or refuses it with a typed reason that names the
// field (refusal.h). It does not check what only the engine can know (whether an attempt is
// current, whether sums are possible). Pure functions, thread-safe.
namespace macaw::wire {

// Says how a blob travels in a message: as a place to map it from, if `share` and it is in a memory
// file; else whole, if its bytes are in memory and not larger than `max_inline`; else as its digest
// alone.
struct InlineRule {
  uint64_t max_inline = 0;
  std::span<const Digest> have;  // the receiver has these: only their digests travel
  bool share = false;            // the receiver may map our memory
};

// Whether bytes that travel inside a message are checked against their digest. Over a private
// socket (address.h) they are not, like all other blobs there.
enum class InlineBytes : uint8_t { kVerify, kTrust };

v1::Blob ToWire(const fleet::Blob& blob, const InlineRule& rule);
absl::StatusOr<fleet::Blob> FromWire(const v1::Blob& blob,
                                     InlineBytes inline_bytes = InlineBytes::kVerify);

// The keys that are not at their defaults. FromWire refuses an unknown key by its name, with
// REASON_VERSION: a node that ignored it would train something else.
v1::RunPlan ToWire(const RunPlan& plan);
absl::StatusOr<RunPlan> FromWire(const v1::RunPlan& plan);
v1::NumericProfile ToWire(const NumericProfile& profile);
absl::StatusOr<NumericProfile> FromWire(const v1::NumericProfile& profile);

v1::HelloRequest ToWire(const fleet::HelloRequest& request);
absl::StatusOr<fleet::HelloRequest> FromWire(const v1::HelloRequest& request);
v1::HelloReply ToWire(const fleet::HelloReply& reply);
absl::StatusOr<fleet::HelloReply> FromWire(const v1::HelloReply& reply);

v1::RegisterRequest ToWire(const fleet::RegisterRequest& request, const InlineRule& rule);
// Always verifies the table of clients, which nodes share by its digest.
absl::StatusOr<fleet::RegisterRequest> FromWire(const v1::RegisterRequest& request);
v1::RegisterReply ToWire(const fleet::RegisterReply& reply);
absl::StatusOr<fleet::RegisterReply> FromWire(const v1::RegisterReply& reply);

struct TimedLeaseRequest {
  fleet::LeaseRequest request;
  Duration wait{};
};
v1::LeaseRequest ToWire(const fleet::LeaseRequest& request, Duration wait);
absl::StatusOr<TimedLeaseRequest> FromWire(const v1::LeaseRequest& request);
v1::LeaseReply ToWire(const fleet::LeaseReply& reply, const InlineRule& rule);
absl::StatusOr<fleet::LeaseReply> FromWire(const v1::LeaseReply& reply,
                                           InlineBytes inline_bytes = InlineBytes::kVerify);

v1::LeftOut ToWire(const fleet::LeftOut& left_out);
absl::StatusOr<fleet::LeftOut> FromWire(const v1::LeftOut& message);
v1::HeartbeatRequest ToWire(const fleet::HeartbeatRequest& request);
absl::StatusOr<fleet::HeartbeatRequest> FromWire(const v1::HeartbeatRequest& request);
v1::HeartbeatReply ToWire(const fleet::HeartbeatReply& reply);
absl::StatusOr<fleet::HeartbeatReply> FromWire(const v1::HeartbeatReply& reply);

v1::Part ToWire(const fleet::Part& part, const InlineRule& rule);
absl::StatusOr<fleet::Part> FromWire(const v1::Part& part,
                                     InlineBytes inline_bytes = InlineBytes::kVerify);
v1::CommitRequest ToWire(const fleet::CommitRequest& request, const InlineRule& rule);
// `part_blob` must have been resolved.
absl::StatusOr<fleet::CommitRequest> FromWire(const v1::CommitRequest& request,
                                              InlineBytes inline_bytes = InlineBytes::kVerify);
v1::CommitReply ToWire(const fleet::CommitReply& reply, const InlineRule& rule);
absl::StatusOr<fleet::CommitReply> FromWire(const v1::CommitReply& reply,
                                            InlineBytes inline_bytes = InlineBytes::kVerify);

v1::ReleaseRequest ToWire(const fleet::ReleaseRequest& request);
absl::StatusOr<fleet::ReleaseRequest> FromWire(const v1::ReleaseRequest& request);
inline v1::ReleaseReply ToWire(const fleet::ReleaseReply&) { return {}; }
inline absl::StatusOr<fleet::ReleaseReply> FromWire(const v1::ReleaseReply&) {
  return fleet::ReleaseReply{};
}

struct PlacedOffer {
  fleet::UploadOffer offer;
  std::optional<fleet::SharedPlace> place = {};
};
v1::BeginUploadRequest ToWire(const PlacedOffer& offer);
absl::StatusOr<PlacedOffer> FromWire(const v1::BeginUploadRequest& request);

struct UploadAnswer {
  fleet::UploadVerdict verdict = fleet::UploadVerdict::kBusy;
  uint64_t offset = 0;
};
v1::BeginUploadReply ToWire(const UploadAnswer& answer);
absl::StatusOr<UploadAnswer> FromWire(const v1::BeginUploadReply& reply);

// Pieces that several messages share.
v1::Fence ToWire(const Fence& fence);
v1::Attempt ToWire(const Attempt& attempt);
Attempt FromWire(const v1::Attempt& attempt);
v1::SharedMemory ToWire(const fleet::SharedPlace& place);
absl::StatusOr<fleet::SharedPlace> FromWire(const v1::SharedMemory& place);
v1::EvaluationTask ToWire(const fleet::EvaluationTask& task);
absl::StatusOr<fleet::EvaluationTask> FromWire(const v1::EvaluationTask& task);
std::string ToWire(const Digest& digest);  // empty when zero

}  // namespace macaw::wire
