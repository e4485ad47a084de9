#include "state/client_state_store.h"

#include <utility>

#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {

absl::Status ClientStateStore::Put(const Attempt& version, std::span<const ConstVectorView> items) {
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer blob, EncodeBlob(version, items, schema_));
  return PutBlob(version, std::make_shared<const AlignedBuffer>(std::move(blob)));
}

absl::Status ClientStateStore::PutBlobs(std::span<const NamedBlob> blobs) {
  for (const NamedBlob& named : blobs) MACAW_RETURN_IF_ERROR(PutBlob(named.version, named.blob));
  return absl::OkStatus();
}

std::vector<absl::StatusOr<BlobPtr>> ClientStateStore::GetBlobs(
    std::span<const Attempt> versions) const {
  std::vector<absl::StatusOr<BlobPtr>> blobs;
  blobs.reserve(versions.size());
  for (const Attempt& version : versions) blobs.push_back(GetBlob(version));
  return blobs;
}

absl::StatusOr<ClientState> ClientStateStore::Get(const Attempt& version) const {
  MACAW_ASSIGN_OR_RETURN(BlobPtr blob, GetBlob(version));
  return OpenBlob(std::move(blob), version, schema_);
}

}  // namespace macaw::state
