#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "macaw/v1/fleet.pb.h"

namespace macaw::wire {

// Reads a Part whose records travelled as a blob. Bytes and clients left out are counted before
// anything is parsed, since a message of a few bytes becomes an object of many: kInvalidArgument
// beyond `max_clients` clients or MaxPartBlobBytes.
absl::Status ParsePartBlob(std::span<const std::byte> bytes, uint64_t max_clients, v1::Part* part);

// Whether a part that came inside its message names no more clients than that.
absl::Status CheckClients(const v1::Part& part, uint64_t max_clients);

// What a part that names `max_clients` clients may take, its sums apart.
uint64_t MaxPartBlobBytes(uint64_t max_clients);

}  // namespace macaw::wire
