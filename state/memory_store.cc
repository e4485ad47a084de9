#include "state/memory_store.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {

MemoryStateStore::MemoryStateStore(StateSchema schema, uint64_t capacity)
    : schema_(std::move(schema)), capacity_(capacity) {}

absl::Status MemoryStateStore::Put(const Attempt& version, std::span<const ConstVectorView> items) {
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer encoded, EncodeBlob(version, items, schema_));
  auto blob = std::make_shared<const AlignedBuffer>(std::move(encoded));
  const MutexLock lock(&mutex_);
  if (const auto found = blobs_.find(KeyOf(version)); found != blobs_.end()) {
    return std::ranges::equal(found->second->bytes(), blob->bytes()) ? absl::OkStatus()
                                                                     : Overwriting(version);
  }
  if (blob->size() > capacity_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        Describe(version), ": the memory store is full (", used_, " of ", capacity_,
        " bytes used, ", blob->size(), " needed); raise its limit or use the disk store"));
  }
  used_ += blob->size();
  blobs_.emplace(KeyOf(version), std::move(blob));
  return absl::OkStatus();
}

absl::StatusOr<ClientState> MemoryStateStore::Get(const Attempt& version) const {
  std::shared_ptr<const AlignedBuffer> blob;
  {
    const MutexLock lock(&mutex_);
    const auto found = blobs_.find(KeyOf(version));
    if (found == blobs_.end()) return Missing(version);
    blob = found->second;
  }
  return OpenBlob(std::move(blob), version, schema_);
}

absl::StatusOr<bool> MemoryStateStore::Contains(const Attempt& version) const {
  const MutexLock lock(&mutex_);
  return blobs_.contains(KeyOf(version));
}

absl::Status MemoryStateStore::Delete(std::span<const Attempt> versions) {
  const MutexLock lock(&mutex_);
  for (const Attempt& version : versions) {
    const auto found = blobs_.find(KeyOf(version));
    if (found == blobs_.end()) continue;
    used_ -= found->second->size();
    blobs_.erase(found);
  }
  return absl::OkStatus();
}

}  // namespace macaw::state
