#include "state/cached_store.h"

#include <utility>

#include "core/status.h"

namespace macaw::state {

CachedStateStore::CachedStateStore(std::unique_ptr<ClientStateStore> back, uint64_t budget)
    : ClientStateStore(back->schema()), back_(std::move(back)), budget_(budget) {}

void CachedStateStore::Keep(const Attempt& version, BlobPtr blob) const {
  if (blob->size() > budget_) return;
  const MutexLock lock(&mutex_);
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

absl::StatusOr<BlobPtr> CachedStateStore::GetBlob(const Attempt& version) const {
  {
    const MutexLock lock(&mutex_);
    if (const auto found = places_.find(version); found != places_.end()) {
      ++counts_.hits;
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->blob;
    }
    ++counts_.misses;
  }
  MACAW_ASSIGN_OR_RETURN(BlobPtr blob, back_->GetBlob(version));
  Keep(version, blob);
  return blob;
}

absl::Status CachedStateStore::Delete(std::span<const Attempt> versions) {
  {
    const MutexLock lock(&mutex_);
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

CachedStateStore::Counts CachedStateStore::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace macaw::state
