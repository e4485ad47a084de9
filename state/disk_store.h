#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/digest.h"
#include "core/mutex.h"
#include "state/client_state_store.h"
#include "state/segment.h"

namespace macaw::state {

// States in one folder, shared by the worker processes of a host. All versions of a run are equally
// large and a fence is used once, so a version's name says where it lies: file EPOCH-BLOCK.states,
// slot counter mod slots. There is no index to keep, to grow, or to disagree with the files; the
// processes share no lock, because no two write one slot. The versions of a round lie side by side.
//
// A version is visible once Put has returned, also after this process is killed; after Flush it
// outlasts a crash of the machine. Layout and reasons: state/README.md.
class DiskStateStore final : public ClientStateStore {
 public:
  // What Flush is to outlast; the death of the process, everything outlasts anyway.
  enum class Durability { kMachine, kProcess };

  // Creates what is missing of the folder. `run` names the run for ever: kFailedPrecondition when
  // the folder holds the states of another one, or of another model.
  static absl::StatusOr<std::unique_ptr<DiskStateStore>> Open(
      const std::string& folder, StateSchema schema, const Digest& run,
      Durability durability = Durability::kMachine);

  absl::Status PutBlob(const Attempt& version, BlobPtr blob) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<bool> Contains(const Attempt& version) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Flush() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Delete(std::span<const Attempt> versions) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const override;

  struct Usage {
    uint64_t files = 0;
    uint64_t bytes = 0;  // really taken
  };
  absl::StatusOr<Usage> UsageOnDisk() const;

 private:
  // What one file holds: the fences of `epoch` with counters block·slots … (block+1)·slots − 1.
  struct Key {
    uint32_t epoch = 0;
    uint64_t block = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  DiskStateStore(std::string folder, StateSchema schema, const Segment::Shape& shape,
                 Durability durability);
  Key KeyOf(const Fence& fence) const { return {fence.epoch, fence.counter / shape_.slots}; }
  uint64_t SlotOf(const Fence& fence) const { return fence.counter % shape_.slots; }
  std::string PathOf(const Key& key) const;
  absl::StatusOr<std::vector<Key>> Keys() const;
  absl::StatusOr<std::shared_ptr<Segment>> Find(const Key& key, Segment::Mode mode) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  void MarkDirty(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EraseIn(const Key& key, std::span<const Attempt> versions)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string folder_;
  const Segment::Shape shape_;
  const Durability durability_;
  mutable Mutex mutex_;
  // Open files, the latest used first.
  mutable std::list<std::pair<Key, std::shared_ptr<Segment>>> open_ ABSL_GUARDED_BY(mutex_);
  std::set<Key> dirty_ ABSL_GUARDED_BY(mutex_);  // written and not synced
  Fence settled_ ABSL_GUARDED_BY(mutex_);        // nobody writes at or before it any more
};

}  // namespace macaw::state
