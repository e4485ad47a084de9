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

// Makes the blob's bytes read-only and returns where other processes find them while the blob
// lives. A later write to them crashes. Returns nullopt for a blob that is not in a memory file.
// May be called again.
std::optional<fleet::SharedPlace> PublishShared(const fleet::Blob& blob);

// Maps a published blob of another process (or of this one). The bytes stay valid after the owner
// has ended. kNotFound when there is no blob of that digest and size, for example because the owner
// has freed it. The digest is compared with the label, not computed again.
absl::StatusOr<std::shared_ptr<const AlignedBuffer>> MapShared(const fleet::SharedPlace& place,
                                                               const Digest& digest, size_t size);

}  // namespace macaw::wire
