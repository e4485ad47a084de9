#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "macaw/v1/fleet.pb.h"

// Typed reasons. A refusal is an absl::Status that carries a macaw.v1.Refusal as payload; it
// crosses the wire in the gRPC status's details and is the same Status again on the other side.
namespace macaw::wire {

// `where` is a field's path for REASON_MALFORMED, else free. All functions are thread-safe.
absl::Status Refuse(v1::Refusal::Reason reason, absl::string_view message,
                    absl::string_view where = "", const Digest& digest = {});

// REASON_UNSPECIFIED when the status carries no reason.
v1::Refusal::Reason ReasonOf(const absl::Status& status);

// Malformed: a field is invalid. Within: the same error with the path of the outer message, as in
// Within("part", Malformed("weight", …)).
absl::Status Malformed(absl::string_view field, absl::string_view why);
absl::Status Within(absl::string_view outer, const absl::Status& status);

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// A text that is safe to send and to show: its first kMaxTextBytes, with "?" for what a protobuf
// string may not hold and for control characters but line breaks.
std::string ShortCleanText(absl::string_view text);

}  // namespace macaw::wire
