#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "state/client_state_store.h"

namespace macaw::state {

// States in this process's memory, up to a limit. They are lost when the process ends, so such a
// run cannot be resumed and has a single worker process. Reads share the stored bytes and copy
// nothing.
class MemoryStateStore final : public ClientStateStore {
 public:
  // `capacity` is in bytes, over all versions. A Put beyond it fails with a message that says what
  // to change.
  MemoryStateStore(StateSchema schema, uint64_t capacity);

  absl::Status PutBlob(const Attempt& version, BlobPtr blob) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<bool> Contains(const Attempt& version) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Flush() override { return absl::OkStatus(); }  // memory cannot be made durable
  absl::Status Delete(std::span<const Attempt> versions) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const override
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const uint64_t capacity_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Attempt, BlobPtr, VersionHash> blobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace macaw::state
