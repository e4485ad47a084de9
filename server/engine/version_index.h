#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "proto/fleet/state_digest.h"

namespace macaw::server {

// The current version of each client's state. Memory: 8 bytes per client, in pages that are
// allocated when their first client keeps a state. One thread.
class VersionIndex {
 public:
  // The client's version. `counter` 0: it has none.
  Fence Get(ClientId client) const;
  void Set(ClientId client, const Fence& fence);
  void Clear(ClientId client);
  uint64_t size() const { return size_; }  // clients that keep a state
  bool empty() const { return size_ == 0; }

  // pages: the number of pages; each covers fleet::kStateRange client ids. Page: the versions of
  // one page, by client id.
  uint64_t pages() const { return pages_.size(); }
  std::vector<Attempt> Page(uint64_t page) const;

  // Pairs (client, version) by client id, as a checkpoint holds them.
  std::vector<uint64_t> Encode() const;
  // Returns an error if Encode cannot have made `numbers` for `clients` clients.
  static absl::StatusOr<VersionIndex> Decode(std::span<const uint64_t> numbers, uint64_t clients);

 private:
  std::vector<std::vector<uint64_t>> pages_;  // each is empty or has kStateRange versions
  uint64_t size_ = 0;
};

// The state versions over the rounds of a run. A version is staged when its part is accepted, in
// any phase of a round. The round's later phases read it. It becomes current when the round is
// done. So a round that is dropped leaves nothing behind, and the evaluation of the previous round,
// which runs beside the open one, still sees the states of its own round. One thread.
class StateVersions {
 public:
  // The staged versions of a round count once it closes.
  enum class Staged : uint8_t { kLeftOut, kIncluded };

  // `most_replaced` bounds how many replaced versions are remembered. A version that is forgotten
  // stays in the store until the store is swept.
  StateVersions(VersionIndex index, uint64_t most_replaced);

  Fence Current(ClientId client) const { return index_.Get(client); }
  const VersionIndex& index() const { return index_; }
  bool any() const { return !index_.empty() || !staged_.empty(); }

  void Stage(const Attempt& version) { staged_.push_back(version); }
  // Forgets all staged versions but the first `keep`. The store may delete them (`macaw state gc`).
  void Unstage(size_t keep) { staged_.resize(std::min(keep, staged_.size())); }
  // In the order of staging. If a client has several, the last one counts.
  const std::vector<Attempt>& staged() const { return staged_; }
  // The clients have lost their current, or their staged versions. ForgetStaged returns how many of
  // the first `first` staged versions were theirs.
  void ForgetCurrent(std::span<const ClientId> clients);
  size_t ForgetStaged(std::span<const ClientId> clients, size_t first = 0);
  // The round is done: the staged versions become current.
  void Close(Round round);
  // The round is done, and after it no client has a state.
  void CloseAndForgetAll(Round round);
  // The round was dropped: its staged versions never become current. They stay in the store until
  // the store is swept.
  void DropStaged() { staged_.clear(); }

  // The versions for a checkpoint, with or without the staged ones. Versions that are made after
  // one snapshot and replaced before the next are in no checkpoint.
  VersionIndex Snapshot(Staged staged);
  // Checkpoints of rounds before `oldest` no longer exist.
  void CheckpointsFrom(Round oldest);

  // Up to `most` versions that are neither in the index nor in a checkpoint. Each is returned once.
  // No worker can be reading them, because they were replaced in a round that is closed.
  std::vector<Attempt> TakeDeletable(size_t most);

 private:
  struct Replaced {
    Round round{};  // the first round whose checkpoint does not hold the version
    Attempt version;
  };
  // A version that was current is not any more, since this round.
  void Retire(Round round, const Attempt& version);

  VersionIndex index_;
  const uint64_t most_replaced_;
  std::vector<Attempt> staged_;
  Fence newest_;                   // the newest version that was ever current
  Fence snapshot_;                 // newest_ when the last snapshot was taken
  std::deque<Replaced> replaced_;  // those that a checkpoint may still hold, by round
  std::deque<Attempt> deletable_;
};

}  // namespace macaw::server
