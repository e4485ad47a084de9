#include "server/engine/troubles.h"

#include <algorithm>

namespace macaw::server {

Trouble Troubles::Note(Trouble::Kind kind, ClientId client, const std::string& node,
                       Reports& reports) {
  ++reports.times;
  reports.nodes.insert(node);
  return {.kind = kind,
          .client = client,
          .times = reports.times,
          .nodes = static_cast<uint32_t>(reports.nodes.size())};
}

void Troubles::LostWith(const std::string& node, std::span<const Attempt> leases) {
  for (const Attempt& lease : leases) lost_leases_[lease] = node;
}

std::vector<Trouble> Troubles::Died(const std::string& node, std::span<const Attempt> running) {
  std::vector<Trouble> troubles;
  for (const Attempt& attempt : running) {
    const auto lease = lost_leases_.find(attempt);
    if (lease == lost_leases_.end() || lease->second != node) continue;
    lost_leases_.erase(lease);
    troubles.push_back(Note(Trouble::Kind::kDied, attempt.client, node, deaths_[attempt.client]));
  }
  return troubles;
}

Trouble Troubles::StateUnreadable(const std::string& node, ClientId client) {
  return Note(Trouble::Kind::kStateUnreadable, client, node, unreadable_[client]);
}

bool Troubles::CannotRead(const std::string& node, ClientId client) const {
  const auto it = unreadable_.find(client);
  return it != unreadable_.end() && it->second.nodes.contains(node);
}

bool Troubles::SomebodyElse(const Nodes& nodes, HoldingId holding, ClientId client) const {
  return std::ranges::any_of(nodes.Of(holding).members,
                             [&](WorkerId id) { return !CannotRead(nodes.At(id).name, client); });
}

}  // namespace macaw::server
