#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"
#include "server/engine/nodes.h"
#include "server/engine/roster.h"
#include "server/engine/version_index.h"

namespace macaw::server {

// What the engine knows of the states that clients keep between rounds: which version of each is
// current, and which may be deleted, by the nodes that have them. Pure; one thread.
class ClientStates {
 public:
  // `keeps`: the run's algorithm keeps states. `versions`: of a resumed run.
  ClientStates(bool keeps, VersionIndex versions, uint64_t clients);

  bool keeps() const { return keeps_; }
  StateVersions& versions() { return versions_; }
  const StateVersions& versions() const { return versions_; }

  // Whether a node with such a store may join those that are there.
  absl::Status CheckStore(const fleet::RegisterRequest& node, std::optional<HoldingId> holding,
                          const Nodes& others) const;
  // Versions that nothing names any more, of this holding's clients; each is given out once.
  std::vector<Attempt> TakeDeletable(HoldingId holding, const Roster& roster);

 private:
  const bool keeps_;
  const bool resumed_with_states_;
  StateVersions versions_;
  std::vector<std::deque<Attempt>> deletable_;  // by holding
};

// Why the run stops over a state that cannot be read, and what can be done.
absl::Status Unreadable(ClientId client, const std::string& why);

}  // namespace macaw::server
