#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "macaw/v1/fleet.pb.h"

namespace macaw::wire {

// Parses a Part whose records travelled as a blob. The size and the number of left-out clients are
// checked before parsing, since a message of a few bytes becomes a large object. kInvalidArgument
// beyond `max_clients` clients, counted and left out together, or MaxPartBlobBytes.
absl::Status ParsePartBlob(std::span<const std::byte> bytes, uint64_t max_clients, v1::Part* part);

// The same limit for a part that came inside its message: an error if it names more clients.
absl::Status CheckClients(const v1::Part& part, uint64_t max_clients);

// The most bytes that a part with `max_clients` clients may have, without its sums.
uint64_t MaxPartBlobBytes(uint64_t max_clients);

}  // namespace macaw::wire
