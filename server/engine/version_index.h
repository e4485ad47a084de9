#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "proto/fleet/state_digest.h"

namespace macaw::server {

// Which version of each client's state is current: 8 bytes a client, in pages that are not there
// before their first client keeps something. One thread.
class VersionIndex {
 public:
  // `counter` 0: none.
  Fence Get(ClientId client) const;
  void Set(ClientId client, const Fence& fence);
  void Clear(ClientId client);
  uint64_t size() const { return size_; }  // clients that keep a state
  bool empty() const { return size_ == 0; }

  // Clients in pages of fleet::kStateRange, by id; the versions of one page, by client.
  uint64_t pages() const { return pages_.size(); }
  std::vector<Attempt> Page(uint64_t page) const;

  // (client, version) by client: what a checkpoint holds.
  std::vector<uint64_t> Encode() const;
  // Refuses what Encode cannot have made for so many clients.
  static absl::StatusOr<VersionIndex> Decode(std::span<const uint64_t> numbers, uint64_t clients);

 private:
  std::vector<std::vector<uint64_t>> pages_;  // each empty, or kStateRange versions
  uint64_t size_ = 0;
};

// The versions over the rounds of a run. A version is staged when its part is accepted, in any
// phase of a round; the round's later phases read it, and it becomes current when the round is
// done, so that a round which is dropped leaves nothing behind, and the evaluation of the round
// before, which goes on beside it, still sees that round's states. One thread.
class StateVersions {
 public:
  // The staged versions of a round count once it closes.
  enum class Staged : uint8_t { kLeftOut, kIncluded };

  // `most_replaced` bounds how many replaced versions are remembered; one that is forgotten stays
  // in the store until it is swept.
  StateVersions(VersionIndex index, uint64_t most_replaced);

  Fence Current(ClientId client) const { return index_.Get(client); }
  const VersionIndex& index() const { return index_; }
  bool any() const { return !index_.empty() || !staged_.empty(); }

  void Stage(const Attempt& version) { staged_.push_back(version); }
  // In the order in which they were staged: of several of a client, the last counts.
  const std::vector<Attempt>& staged() const { return staged_; }
  // The round is done: what was staged is current.
  void Close(Round round);

  // What a checkpoint must hold, with or without what is staged. Versions made after it and
  // replaced before the next one are in no checkpoint at all.
  VersionIndex Snapshot(Staged staged);
  // The checkpoints of this round and later are all there are.
  void CheckpointsFrom(Round oldest);

  // Versions that neither the index nor a checkpoint names; each is given out once. Nobody can be
  // reading them: they were replaced in a round that is closed.
  std::vector<Attempt> TakeDeletable(size_t most);

 private:
  struct Replaced {
    Round round{};  // the first whose checkpoint does not name it
    Attempt version;
  };

  VersionIndex index_;
  const uint64_t most_replaced_;
  std::vector<Attempt> staged_;
  Fence newest_;                   // ever current
  Fence snapshot_;                 // newest_ when the last snapshot was taken
  std::deque<Replaced> replaced_;  // may be named by a checkpoint; by round
  std::deque<Attempt> deletable_;
};

}  // namespace macaw::server
