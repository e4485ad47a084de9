#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/work_counter.h"
#include "state/client_state_store.h"

namespace macaw::state {

// The XOR of the digests of (client, content) over these versions (proto/fleet/state_digest.h).
// Reads all of them; an error names the first that cannot be read. Adds what it reads to `work`, if
// given, a few states at a time.
absl::StatusOr<Digest> DigestOfRange(const ClientStateStore& store,
                                     std::span<const Attempt> versions,
                                     WorkCounter* work = nullptr);

}  // namespace macaw::state
