#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/ids.h"
#include "scheduler/cohort.h"
#include "scheduler/dispatch.h"
#include "server/engine/nodes.h"

namespace macaw::server {

// The clients of a phase that wait for a lease. Each waits in the queue of its holding, so that an
// owner's clients are never leased to another node. A client that a node passes over is set aside
// for the other nodes of the holding. Pure; one thread.
class WaitingClients {
 public:
  // Sets the queue from which the holding's clients are handed out.
  void Plan(HoldingId holding, scheduler::DispatchQueue queue) {
    QueueOf(holding) = std::move(queue);
  }
  void Clear();
  bool any(HoldingId holding) const;

  struct Taken {
    scheduler::Piece piece;
    bool passed_over = false;  // clients of the node's piece are now for other nodes
  };
  // Takes a piece for the node that asks: at most `most` clients, those first that were set aside.
  // `avoid(client)`: whether another node should have the client.
  template <typename Avoid>
  Taken Take(HoldingId holding, const scheduler::Ask& ask, size_t most, const Avoid& avoid);

  // The client waits again.
  void PutBack(HoldingId holding, const scheduler::CohortEntry& entry) {
    QueueOf(holding).PutBack(entry);
  }
  void Remove(HoldingId holding, ClientId client);
  // Gives the queue of a lost node to the others of its holding.
  void RemoveWorker(HoldingId holding, WorkerId node) { QueueOf(holding).RemoveWorker(node); }

 private:
  scheduler::DispatchQueue& QueueOf(HoldingId holding);

  std::vector<scheduler::DispatchQueue> queues_;  // by holding
  // Clients that a node has passed over; no entry: none.
  absl::flat_hash_map<HoldingId, std::vector<scheduler::CohortEntry>> aside_;
};

template <typename Avoid>
WaitingClients::Taken WaitingClients::Take(HoldingId holding, const scheduler::Ask& ask,
                                           size_t most, const Avoid& avoid) {
  std::vector<scheduler::CohortEntry> kept, aside;
  Taken taken;
  if (const auto set_aside = aside_.extract(holding); !set_aside.empty()) {
    for (const scheduler::CohortEntry& entry : set_aside.mapped()) {
      const bool take = kept.size() < most && kept.size() < ask.idle && !avoid(entry.client);
      (take ? kept : aside).push_back(entry);
    }
  }
  taken.piece = QueueOf(holding).Take(ask);
  for (const scheduler::CohortEntry& entry : taken.piece.clients) {
    if (avoid(entry.client)) {
      aside.push_back(entry);
      taken.passed_over = true;
    } else if (kept.size() < most) {
      kept.push_back(entry);
    } else {
      PutBack(holding, entry);
      taken.passed_over = true;
    }
  }
  if (!aside.empty()) aside_[holding] = std::move(aside);
  taken.piece.clients = std::move(kept);
  return taken;
}

}  // namespace macaw::server
