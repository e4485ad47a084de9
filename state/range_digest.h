#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "state/client_state_store.h"

namespace macaw::state {

// The XOR of the digests over (client, content) of these versions (proto/fleet/state_digest.h).
// Reads them all; an error names the first that cannot be read.
absl::StatusOr<Digest> DigestOfRange(const ClientStateStore& store,
                                     std::span<const Attempt> versions);

}  // namespace macaw::state
