#include "state/cached_store.h"

#include <utility>

#include "core/status.h"

namespace macaw::state {

CachedStateStore::CachedStateStore(std::unique_ptr<ClientStateStore> back, uint64_t budget)
    : ClientStateStore(back->schema()), back_(std::move(back)), budget_(budget) {}

void CachedStateStore::Keep(const Attempt& version, BlobPtr blob) const {
  if (blob->size() > budget_) return;
  const absl::MutexLock lock(&mutex_);
  if (places_.contains(version)) return;
  used_ += blob->size();
  entries_.push_front({version, std::move(blob)});
  places_.emplace(version, entries_.begin());
  while (used_ > budget_) {
    used_ -= entries_.back().blob->size();
    places_.erase(entries_.back().version);
    entries_.pop_back();
  }
}

absl::Status CachedStateStore::PutBlob(const Attempt& version, BlobPtr blob) {
  MACAW_RETURN_IF_ERROR(back_->PutBlob(version, blob));
  Keep(version, std::move(blob));
  return absl::OkStatus();
}

absl::Status CachedStateStore::PutBlobs(std::span<const NamedBlob> blobs) {
  MACAW_RETURN_IF_ERROR(back_->PutBlobs(blobs));
  for (const NamedBlob& named : blobs) Keep(named.version, named.blob);
  return absl::OkStatus();
}

BlobPtr CachedStateStore::Find(const Attempt& version) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = places_.find(version);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->blob;
}

absl::StatusOr<BlobPtr> CachedStateStore::GetBlob(const Attempt& version) const {
  if (BlobPtr blob = Find(version); blob != nullptr) return blob;
  MACAW_ASSIGN_OR_RETURN(BlobPtr blob, back_->GetBlob(version));
  Keep(version, blob);
  return blob;
}

std::vector<absl::StatusOr<BlobPtr>> CachedStateStore::GetBlobs(
    std::span<const Attempt> versions) const {
  std::vector<absl::StatusOr<BlobPtr>> blobs;
  std::vector<Attempt> missed;
  for (const Attempt& version : versions) {
    blobs.emplace_back(Find(version));
    if (*blobs.back() == nullptr) missed.push_back(version);
  }
  std::vector<absl::StatusOr<BlobPtr>> read = back_->GetBlobs(missed);
  for (size_t i = 0, next = 0; i < blobs.size(); ++i) {
    if (*blobs[i] != nullptr) continue;
    if (read[next].ok()) Keep(versions[i], *read[next]);
    blobs[i] = std::move(read[next++]);
  }
  return blobs;
}

absl::Status CachedStateStore::Delete(std::span<const Attempt> versions) {
  {
    const absl::MutexLock lock(&mutex_);
    for (const Attempt& version : versions) {
      const auto found = places_.find(version);
      if (found == places_.end()) continue;
      used_ -= found->second->blob->size();
      entries_.erase(found->second);
      places_.erase(found);
    }
  }
  return back_->Delete(versions);
}

}  // namespace macaw::state
