#include "server/engine/troubles.h"

#include <algorithm>
#include <array>

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

Trouble Troubles::LeftOut(const std::string& node, ClientId client) {
  return Note(Trouble::Kind::kLeftOut, client, node, left_out_[client]);
}

void Troubles::RanOut(const std::string& node, ClientId client) {
  ++ran_out_[client].times;
  ran_out_[client].nodes.insert(node);
}

uint32_t Troubles::TimesRanOut(ClientId client) const {
  const auto it = ran_out_.find(client);
  return it != ran_out_.end() ? it->second.times : 0;
}

bool Troubles::Avoids(const std::string& node, ClientId client) const {
  return std::ranges::any_of(
      std::array{&unreadable_, &left_out_, &ran_out_}, [&](const auto* reports) {
        const auto it = reports->find(client);
        return it != reports->end() && it->second.nodes.contains(node);
      });
}

bool Troubles::SomebodyElse(const Nodes& nodes, HoldingId holding, ClientId client) const {
  return std::ranges::any_of(nodes.Of(holding).members, [&](WorkerId id) {
    const Node& node = nodes.At(id);
    return node.declined.empty() && !Avoids(node.name, client);
  });
}

std::string Troubles::Alone(const std::vector<fleet::LeftOut>& clients) const {
  std::string alone;
  for (const fleet::LeftOut& left : clients) {
    const auto it = left_out_.find(left.attempt.client);
    if (it == left_out_.end() || it->second.nodes.size() != 1) return "";
    const std::string& name = *it->second.nodes.begin();
    if (!alone.empty() && name != alone) return "";
    alone = name;
  }
  return alone;
}

}  // namespace macaw::server
