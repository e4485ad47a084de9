#include "server/engine/waiting_clients.h"

namespace macaw::server {

void WaitingClients::Clear() {
  queues_.clear();
  aside_.clear();
}

bool WaitingClients::any(HoldingId holding) const {
  return (holding.value < queues_.size() && !queues_[holding.value].empty()) ||
         aside_.contains(holding);
}

void WaitingClients::Remove(HoldingId holding, ClientId client) {
  QueueOf(holding).Remove(client);
  const auto aside = aside_.find(holding);
  if (aside == aside_.end()) return;
  std::erase_if(aside->second,
                [&](const scheduler::CohortEntry& entry) { return entry.client == client; });
  if (aside->second.empty()) aside_.erase(aside);
}

scheduler::DispatchQueue& WaitingClients::QueueOf(HoldingId holding) {
  if (holding.value >= queues_.size()) queues_.resize(holding.value + 1);
  return queues_[holding.value];
}

}  // namespace macaw::server
