#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "state/client_state_store.h"

namespace macaw::state {

// A memory cache in front of another store: it keeps what was read or written last, up to a budget
// in bytes. It only makes reads faster. Versions never change, so nothing in it can be stale.
class CachedStateStore final : public ClientStateStore {
 public:
  // `budget` is in bytes; with 0 nothing is cached.
  CachedStateStore(std::unique_ptr<ClientStateStore> back, uint64_t budget);

  absl::Status PutBlob(const Attempt& version, BlobPtr blob) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PutBlobs(std::span<const NamedBlob> blobs) override ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<absl::StatusOr<BlobPtr>> GetBlobs(std::span<const Attempt> versions) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<bool> Contains(const Attempt& version) const override {
    return back_->Contains(version);
  }
  absl::Status Flush() override { return back_->Flush(); }
  absl::Status Delete(std::span<const Attempt> versions) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const override {
    return back_->ForEach(visit);
  }

 private:
  struct Entry {
    Attempt version;
    BlobPtr blob;
  };
  // Null if it is not cached.
  BlobPtr Find(const Attempt& version) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(const Attempt& version, BlobPtr blob) const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<ClientStateStore> back_;
  const uint64_t budget_;
  mutable absl::Mutex mutex_;
  mutable std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  mutable absl::flat_hash_map<Attempt, std::list<Entry>::iterator, VersionHash> places_
      ABSL_GUARDED_BY(mutex_);
  mutable uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace macaw::state
