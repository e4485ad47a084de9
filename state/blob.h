#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/ids.h"
#include "core/vector.h"
#include "state/client_state_store.h"

namespace macaw::state {

constexpr uint64_t kBlobHeader = 128;  // bytes

// The bytes of one version, the same in every back end: a 128-byte header, then the raw vectors in
// the schema's order, each on 64 bytes. The header holds a checksum of all that follows it, the
// schema's digest, and client and fence, so that a damaged blob, one of another run and one that
// lies under a wrong name are told apart.

// Errors: vectors that do not fit the schema, by item.
absl::StatusOr<AlignedBuffer> EncodeBlob(const Attempt& version,
                                         std::span<const ConstVectorView> items,
                                         const StateSchema& schema);

// Checks everything; kDataLoss names client, version and what is wrong.
absl::StatusOr<ClientState> OpenBlob(BlobPtr blob, const Attempt& version,
                                     const StateSchema& schema);

// How many bytes every version has, header included; a multiple of 64.
uint64_t BlobBytes(const StateSchema& schema);

// Names the schema in headers and stores.
Digest SchemaDigest(const StateSchema& schema);

// What a header says, for people; the contents are not looked at. kDataLoss: it is none.
struct BlobHeader {
  Attempt version;
  uint32_t format = 0;
  uint64_t checksum = 0, payload = 0;  // payload: bytes behind the header
  Digest schema;
};
absl::StatusOr<BlobHeader> ReadHeader(std::span<const std::byte> blob);

// Whose state a header says it is; nothing for what is no header (a hole, a cut). The contents may
// still be damaged.
std::optional<Attempt> NameIn(std::span<const std::byte> header);

// "client 7, version 2.15": how messages name a version.
std::string Describe(const Attempt& version);

// The errors that every back end gives in the same words.
absl::Status Missing(const Attempt& version);
absl::Status Overwriting(const Attempt& version);

}  // namespace macaw::state
