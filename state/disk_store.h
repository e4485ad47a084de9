#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/digest.h"
#include "state/client_state_store.h"
#include "state/segment.h"

namespace macaw::state {

// In a store's folder: of which run and of what shape its states are.
inline constexpr char kStoreFile[] = "store";

// States in one folder, shared by the worker processes of a host. All versions of a run have the
// same size and a fence is used once, so a version's name determines its place: file
// EPOCH-BLOCK.states, slot counter mod slots. There is no index that would grow or could disagree
// with the files, and no lock between processes, because no two write the same slot. The versions
// of a round are adjacent.
//
// After Put a version is visible and survives the end of this process; after Flush it survives a
// crash of the machine. Layout and reasons: state/README.md.
class DiskStateStore final : public ClientStateStore {
 public:
  // What a flushed version survives: a crash of the machine, or only the end of the process (which
  // every version survives).
  enum class Durability { kMachine, kProcess };

  // Creates missing folders. `run` names the run permanently: kFailedPrecondition if the folder
  // holds the states of another run or of another model.
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
    uint64_t bytes = 0;  // bytes allocated on disk
  };
  absl::StatusOr<Usage> UsageOnDisk() const;

 private:
  // A file's key: it holds the fences of `epoch` with counters block·slots … (block+1)·slots − 1.
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
  mutable absl::Mutex mutex_;
  // Open files, most recently used first.
  mutable std::list<std::pair<Key, std::shared_ptr<Segment>>> open_ ABSL_GUARDED_BY(mutex_);
  std::set<Key> dirty_ ABSL_GUARDED_BY(mutex_);  // written but not synced
  Fence settled_ ABSL_GUARDED_BY(mutex_);        // no process writes at or before it any more
};

}  // namespace macaw::state
