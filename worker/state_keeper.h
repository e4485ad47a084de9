#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/executor.h"
#include "core/work_counter.h"
#include "state/client_state_store.h"

namespace macaw::worker {

// Client states between the slots and the store, so that no slot waits for a disk: the states of
// the next clients are read ahead, in the order of the queue, and new ones are written behind. The
// fence before a commit waits for all of them. Thread-safe.
class StateKeeper {
 public:
  // Reads ahead as many states as keep so many slots busy.
  StateKeeper(std::unique_ptr<state::ClientStateStore> store, uint32_t slots);

  // Which versions will be asked for, in this order. A version with counter 0 is none.
  void Expect(std::span<const Attempt> versions) ABSL_LOCKS_EXCLUDED(mutex_);

  // The state to train or evaluate with; zeros where the client has none yet. kNotFound and
  // kDataLoss name the client and are about its state; anything else is this node's trouble.
  absl::StatusOr<state::ClientState> Read(const Attempt& version) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a copy. Errors of the vectors are returned, those of the store by the next Fence.
  absl::Status Write(const Attempt& version, std::span<const ConstVectorView> items)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Until everything written so far is in the store and durable; and forgets what was expected and
  // never asked for. To call before a commit, with idle slots.
  absl::Status Fence() ABSL_LOCKS_EXCLUDED(mutex_);

  // In the background; nothing depends on it.
  void Delete(std::vector<Attempt> versions);

  const state::ClientStateStore& store() const { return *store_; }
  uint64_t work_done() const { return work_.done(); }  // grows with states read and written

 private:
  using Ahead = std::optional<absl::StatusOr<state::ClientState>>;  // unset: being read
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes all that has gathered meanwhile, at once.
  void WriteQueued() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<state::ClientStateStore> store_;
  const size_t together_;  // states that one read fetches
  const size_t depth_;     // states that are read ahead at most
  const std::vector<FlatVector> zeros_;
  state::ClientState none_;  // views of zeros_
  WorkCounter work_;

  absl::Mutex mutex_;
  std::deque<Attempt> expected_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Attempt, Ahead, state::VersionHash> ahead_ ABSL_GUARDED_BY(mutex_);
  std::vector<state::NamedBlob> to_write_ ABSL_GUARDED_BY(mutex_);
  uint64_t unwritten_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes, those being written included
  absl::Status write_error_ ABSL_GUARDED_BY(mutex_);

  Executor readers_{"state-read", 2};
  Executor writer_{"state-write", 1};
};

}  // namespace macaw::worker
