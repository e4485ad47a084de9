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

// What the engine knows of the states that clients keep between rounds: which version of each state
// is current, and which versions the nodes that store them may delete. Pure; one thread.
class ClientStates {
 public:
  // `keeps`: whether the run's algorithm keeps states. `versions`: the versions of a resumed run.
  ClientStates(bool keeps, VersionIndex versions, uint64_t clients);

  bool keeps() const { return keeps_; }
  StateVersions& versions() { return versions_; }
  const StateVersions& versions() const { return versions_; }

  // Whether a node with such a state store may join the registered nodes (`others`).
  absl::Status CheckStore(const fleet::RegisterRequest& node, std::optional<HoldingId> holding,
                          const Nodes& others) const;
  // Versions of this holding's clients to which nothing refers any more. Each is returned once.
  std::vector<Attempt> TakeDeletable(HoldingId holding, const Roster& roster);

 private:
  const bool keeps_;
  const bool resumed_with_states_;
  StateVersions versions_;
  std::vector<std::deque<Attempt>> deletable_;  // by holding
};

// The error that ends a run because a state cannot be read. It says what the user can do.
absl::Status Unreadable(ClientId client, const std::string& why);

}  // namespace macaw::server
