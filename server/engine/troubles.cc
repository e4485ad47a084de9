#include "server/engine/troubles.h"

#include <algorithm>

namespace macaw::server {

Trouble Troubles::Note(Trouble::Kind kind, ClientId client, const std::string& node,
                       Reports& reports, TimePoint until) {
  ++reports.times;
  reports.until = until;
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

Trouble Troubles::StateUnreadable(const std::string& node, ClientId client, TimePoint until) {
  return Note(Trouble::Kind::kStateUnreadable, client, node, unreadable_[client], until);
}

Trouble Troubles::LeftOut(const std::string& node, ClientId client, TimePoint until) {
  return Note(Trouble::Kind::kLeftOut, client, node, left_out_[client], until);
}

void Troubles::RanOut(const std::string& node, ClientId client, TimePoint until) {
  Note(Trouble::Kind::kLeftOut, client, node, ran_out_[client], until);
}

uint32_t Troubles::TimesRanOut(ClientId client) const {
  const auto it = ran_out_.find(client);
  return it != ran_out_.end() ? it->second.times : 0;
}

std::optional<TimePoint> Troubles::Avoids(const std::string& node, ClientId client) const {
  std::optional<TimePoint> until;
  for (const auto* reports : {&unreadable_, &left_out_, &ran_out_}) {
    const auto it = reports->find(client);
    if (it == reports->end() || !it->second.nodes.contains(node)) continue;
    until = std::max(until.value_or(it->second.until), it->second.until);
  }
  return until;
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
