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

// The encoded form of one version, the same in every back end: a 128-byte header, then the raw
// vectors in the schema's order, each at a multiple of 64 bytes. The header holds a checksum of
// everything after it, the schema's digest, the client and the fence. So a damaged blob, a blob of
// another run and a blob under a wrong name can be told apart.

// Vectors that do not fit the schema are an error that names the item.
absl::StatusOr<AlignedBuffer> EncodeBlob(const Attempt& version,
                                         std::span<const ConstVectorView> items,
                                         const StateSchema& schema);

// Checks everything; a kDataLoss error names the client, the version and what is wrong.
absl::StatusOr<ClientState> OpenBlob(BlobPtr blob, const Attempt& version,
                                     const StateSchema& schema);

// The size of every version, header included; a multiple of 64.
uint64_t BlobBytes(const StateSchema& schema);

// The schema's name in headers and stores.
Digest SchemaDigest(const StateSchema& schema);

// The contents of a header, for people; the vectors are not checked. kDataLoss if it is not a
// header.
struct BlobHeader {
  Attempt version;
  uint32_t format = 0;
  uint64_t checksum = 0, payload = 0;  // payload: bytes after the header
  Digest schema;
};
absl::StatusOr<BlobHeader> ReadHeader(std::span<const std::byte> blob);

// The version that a header names; nothing if it is not a header (a hole, a truncated file). The
// contents may still be damaged.
std::optional<Attempt> NameIn(std::span<const std::byte> header);

// How messages name a version: "client 7, version 2.15".
std::string Describe(const Attempt& version);

// Errors with the same wording in every back end.
absl::Status Missing(const Attempt& version);
absl::Status Overwriting(const Attempt& version);

}  // namespace macaw::state
