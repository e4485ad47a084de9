#include "server/engine/client_states.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace macaw::server {
namespace {

constexpr uint64_t kLeastReplaced = 65536;    // replaced versions that are remembered
constexpr size_t kMostDeletable = 4096;       // versions per lease, which must fit a message
constexpr size_t kMostKeptDeletable = 65536;  // versions per holding, until one of its nodes asks

}  // namespace

ClientStates::ClientStates(bool keeps, VersionIndex versions, uint64_t clients)
    : keeps_(keeps),
      resumed_with_states_(!versions.empty()),
      versions_(std::move(versions), std::max(clients, kLeastReplaced)) {}

absl::Status ClientStates::CheckStore(const fleet::RegisterRequest& node,
                                      std::optional<HoldingId> holding, const Nodes& others) const {
  if (!keeps_) return absl::OkStatus();
  // An owner that has lost its clients' states goes on without them.
  if (node.volatile_state && resumed_with_states_ && !node.owner) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker \"", node.name,
        "\" keeps client states in memory, and those of the rounds "
        "before were kept elsewhere: a resumed run needs the store that it began with"));
  }
  if (!holding.has_value()) return absl::OkStatus();
  const Nodes::Team& team = others.Of(*holding);
  if (!node.volatile_state && team.volatile_states == 0) return absl::OkStatus();
  for (const WorkerId id : team.members) {
    const Node& other = others.At(id);
    if (other.name == node.name || (!other.volatile_state && !node.volatile_state)) continue;
    return absl::FailedPreconditionError(
        "client states that are kept in a worker's memory allow no second worker: set "
        "workers.processes = 1, or state.store = \"disk\"");
  }
  return absl::OkStatus();
}

std::vector<Attempt> ClientStates::TakeDeletable(HoldingId holding, const Roster& roster) {
  const auto of = [&](HoldingId id) -> std::deque<Attempt>& {
    if (id.value >= deletable_.size()) deletable_.resize(id.value + 1);
    return deletable_[id.value];
  };
  for (const Attempt& version : versions_.TakeDeletable(kMostDeletable)) {
    std::deque<Attempt>& theirs = of(roster.HoldingOf(version.client));
    theirs.push_back(version);
    // The list of an absent owner must not grow without limit. A forgotten version stays in the
    // owner's store until the store is swept.
    if (theirs.size() > kMostKeptDeletable) theirs.pop_front();
  }
  std::deque<Attempt>& ours = of(holding);
  const auto end =
      ours.begin() + static_cast<std::ptrdiff_t>(std::min(ours.size(), kMostDeletable));
  std::vector<Attempt> taken(ours.begin(), end);
  ours.erase(ours.begin(), end);
  return taken;
}

absl::Status Unreadable(ClientId client, const std::string& why) {
  return absl::DataLossError(absl::StrCat(
      "the state of client ", client.value, " cannot be read: ", why,
      ". The run stops rather than start the client afresh. Restore the store and resume; or "
      "remove the newest checkpoint to go back to an older state; or give this state up with "
      "--resume DIR --state-reset ",
      client.value));
}

}  // namespace macaw::server
