#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"
#include "state/client_state_store.h"

namespace macaw::state {

// The bytes of one version, the same in every back end: a 128-byte header, then the raw vectors in
// the schema's order, each on 64 bytes. The header holds a checksum of all that follows it, the
// schema's digest, and client and fence, so that a damaged blob, one of another run and one that
// lies under a wrong name are told apart.

// Errors: vectors that do not fit the schema, by item.
absl::StatusOr<AlignedBuffer> EncodeBlob(const Attempt& version,
                                         std::span<const ConstVectorView> items,
                                         const StateSchema& schema);

// Checks everything; kDataLoss names client, version and what is wrong.
absl::StatusOr<ClientState> OpenBlob(std::shared_ptr<const AlignedBuffer> blob,
                                     const Attempt& version, const StateSchema& schema);

// "client 7, version 2.15": how messages name a version.
std::string Describe(const Attempt& version);

// The errors that every back end gives in the same words.
absl::Status Missing(const Attempt& version);
absl::Status Overwriting(const Attempt& version);

}  // namespace macaw::state
