#include "state/memory_store.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {

MemoryStateStore::MemoryStateStore(StateSchema schema, uint64_t capacity)
    : ClientStateStore(std::move(schema)), capacity_(capacity) {}

absl::Status MemoryStateStore::PutBlob(const Attempt& version, BlobPtr blob) {
  const absl::MutexLock lock(&mutex_);
  if (const auto found = blobs_.find(version); found != blobs_.end()) {
    return std::ranges::equal(found->second->bytes(), blob->bytes()) ? absl::OkStatus()
                                                                     : Overwriting(version);
  }
  if (blob->size() > capacity_ - used_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(version), ": the memory store is full (", used_, " of ", capacity_,
                     " bytes used, ", blob->size(),
                     " needed); raise state.memory_mb or use state.store = \"disk\""));
  }
  used_ += blob->size();
  blobs_.emplace(version, std::move(blob));
  return absl::OkStatus();
}

absl::StatusOr<BlobPtr> MemoryStateStore::GetBlob(const Attempt& version) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = blobs_.find(version);
  if (found == blobs_.end()) return Missing(version);
  return found->second;
}

absl::StatusOr<bool> MemoryStateStore::Contains(const Attempt& version) const {
  const absl::MutexLock lock(&mutex_);
  return blobs_.contains(version);
}

absl::Status MemoryStateStore::Delete(std::span<const Attempt> versions) {
  const absl::MutexLock lock(&mutex_);
  for (const Attempt& version : versions) {
    const auto found = blobs_.find(version);
    if (found == blobs_.end()) continue;
    used_ -= found->second->size();
    blobs_.erase(found);
  }
  return absl::OkStatus();
}

absl::Status MemoryStateStore::ForEach(const std::function<void(const Attempt&)>& visit) const {
  std::vector<Attempt> versions;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [version, blob] : blobs_) versions.push_back(version);
  }
  for (const Attempt& version : versions) visit(version);
  return absl::OkStatus();
}

}  // namespace macaw::state
