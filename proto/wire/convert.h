#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "macaw/v1/fleet.pb.h"
#include "proto/fleet/fields.h"
#include "proto/fleet/messages.h"

// Conversion between the plain structs and the messages of the wire, by the lists of their fields
// (proto/fleet/fields.h). ToWire cannot fail. FromWire is safe for any message: it accepts the
// message, or refuses it with a typed reason that names the field (refusal.h). It does not check
// what only the engine can know (whether an attempt is current, whether sums are possible). Pure
// functions, thread-safe.
namespace macaw::wire {

// Says how a blob travels in a message: as a place to map it from, if `share` and it is in a memory
// file; else whole, if its bytes are in memory and not larger than `max_inline`; else as its digest
// alone.
struct InlineRule {
  uint64_t max_inline = 0;
  std::span<const Digest> have = {};  // the receiver has these: only their digests travel
  bool share = false;                 // the receiver may map our memory
};

// Whether bytes that travel inside a message are checked against their digest. Over a private
// socket (address.h) they are not, like all other blobs there.
enum class InlineBytes : uint8_t { kVerify, kTrust };

// FromWire(CommitRequest): `part_blob` must have been resolved. FromWire(RegisterRequest): the
// table of clients, which nodes share by its digest, is always verified.
#define MACAW_CONVERSION(Struct, Message)                               \
  v1::Message ToWire(const Struct& value, const InlineRule& rule = {}); \
  absl::StatusOr<Struct> FromWire(const v1::Message& message,           \
                                  InlineBytes inline_bytes = InlineBytes::kVerify);
MACAW_FLEET_MESSAGES(MACAW_CONVERSION)
#undef MACAW_CONVERSION

v1::Blob ToWire(const fleet::Blob& blob, const InlineRule& rule);
absl::StatusOr<fleet::Blob> FromWire(const v1::Blob& blob,
                                     InlineBytes inline_bytes = InlineBytes::kVerify);

// The keys that are not at their defaults. FromWire refuses an unknown key by its name, with
// REASON_VERSION: a node that ignored it would train something else.
v1::RunPlan ToWire(const RunPlan& plan, const InlineRule& rule = {});
absl::StatusOr<RunPlan> FromWire(const v1::RunPlan& plan,
                                 InlineBytes inline_bytes = InlineBytes::kVerify);

v1::Attempt ToWire(const Attempt& attempt);
std::string ToWire(const Digest& digest);  // empty when zero

}  // namespace macaw::wire
