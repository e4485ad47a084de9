#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "core/mutex.h"
#include "state/client_state_store.h"

namespace macaw::state {

// States in this process's memory, up to a limit. They end with the process: a run on it cannot be
// resumed and has one worker process. Reading shares the stored bytes and copies nothing.
class MemoryStateStore final : public ClientStateStore {
 public:
  // `capacity` in bytes, over all versions; a Put beyond it is refused with the way out.
  MemoryStateStore(StateSchema schema, uint64_t capacity);

  absl::Status Put(const Attempt& version, std::span<const ConstVectorView> items) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ClientState> Get(const Attempt& version) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<bool> Contains(const Attempt& version) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Delete(std::span<const Attempt> versions) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // An Attempt that can be hashed.
  struct Key {
    ClientId client;
    Fence fence;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.client, key.fence);
    }
  };
  static Key KeyOf(const Attempt& version) { return {version.client, version.fence}; }

  const StateSchema schema_;
  const uint64_t capacity_;
  mutable Mutex mutex_;
  absl::flat_hash_map<Key, std::shared_ptr<const AlignedBuffer>> blobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace macaw::state
