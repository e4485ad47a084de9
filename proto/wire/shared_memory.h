#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/buffer.h"
#include "core/digest.h"
#include "proto/fleet/messages.h"

// Large blobs on one host: the receiver maps the sender's memory file read-only instead of copying
// it. The file's label holds the digest of its bytes, so that a reader notices when another file is
// there. Thread-safe.
namespace macaw::wire {

// Returns where other processes find the blob's bytes while it lives; nullopt for a blob that is
// not in a memory file. The bytes must not change any more. May be called again.
std::optional<fleet::SharedPlace> PublishShared(const fleet::Blob& blob);

// Maps a published blob of another process (or of this one). The bytes stay valid after the owner
// has ended. kNotFound when there is no blob of that digest and size, for example because the owner
// has freed it. The digest is compared with the label, not computed again. The file stays mapped
// for a while after the last reader, because owners use their files again.
absl::StatusOr<std::shared_ptr<const AlignedBuffer>> MapShared(const fleet::SharedPlace& place,
                                                               const Digest& digest, size_t size);

}  // namespace macaw::wire
