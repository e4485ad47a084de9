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

// Moves client states between the slots and the store, so that no slot waits for a disk. It reads
// the states of the next clients ahead, in the order of the queue, and writes new states in the
// background. Fence, called before a commit, waits for all writes. Thread-safe.
class StateKeeper {
 public:
  // Reads ahead as many states as keep this number of slots busy.
  StateKeeper(std::unique_ptr<state::ClientStateStore> store, uint32_t slots);

  // Announces the versions that will be read, in this order. Counter 0: the client has no state.
  void Expect(std::span<const Attempt> versions) ABSL_LOCKS_EXCLUDED(mutex_);

  // The state to train or evaluate with; zeros if the client has none yet. kNotFound and kDataLoss
  // name the client and concern its state. Any other error is a fault of this node.
  absl::StatusOr<state::ClientState> Read(const Attempt& version) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a copy. Returns errors of the vectors; the next Fence returns errors of the store.
  absl::Status Write(const Attempt& version, std::span<const ConstVectorView> items)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until everything written so far is durable in the store. Forgets the versions that were
  // expected and never read. Call before a commit, with idle slots.
  absl::Status Fence() ABSL_LOCKS_EXCLUDED(mutex_);

  // Deletes in the background. Nothing waits for it.
  void Delete(std::vector<Attempt> versions);

  const state::ClientStateStore& store() const { return *store_; }
  uint64_t work_done() const { return work_.done(); }  // grows with states read and written

 private:
  using Ahead = std::optional<absl::StatusOr<state::ClientState>>;  // unset: being read
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes all queued states at once.
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
  uint64_t unwritten_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes not yet written, including those being
                                                    // written
  absl::Status write_error_ ABSL_GUARDED_BY(mutex_);

  Executor readers_{"state-read", 2};
  Executor writer_{"state-write", 1};
};

}  // namespace macaw::worker
