#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "worker/lane.h"
#include "worker/phase.h"

namespace macaw::worker {

struct TrainItem {
  std::shared_ptr<const PhaseContext> phase;
  LeasedClient client;
  Attempt attempt() const { return {client.assignment.client, client.assignment.fence}; }
};
struct EvaluateItem {
  std::shared_ptr<const EvaluationContext> evaluation;
  fleet::EvaluationTask task;
};
using WorkItem = std::variant<TrainItem, EvaluateItem>;

// Leased work that was not begun.
struct Unbegun {
  std::vector<Attempt> attempts;
  std::vector<Fence> tasks;  // of evaluations
  bool empty() const { return attempts.empty() && tasks.empty(); }
};

// Leased work that waits for a lane, first in, first out. Not thread-safe: the mutex of its pool
// guards it.
class WorkQueue {
 public:
  void Push(WorkItem item) { items_.push_back(std::move(item)); }
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  void Clear() { items_.clear(); }

  // Takes what a lane does next, from the front: an evaluation, or as many clients of one phase as
  // the lane should train at once. That is its share, if other lanes are idle, too; a client whose
  // round is said later comes alone. `idle_lanes`: this one among them. `most`: clients that the
  // lane trains at once. The queue must not be empty.
  std::vector<WorkItem> TakeTurn(size_t idle_lanes, size_t most);

  // Removes the client's attempt. Returns false if it does not wait.
  bool Remove(const Attempt& attempt);
  // Removes everything.
  Unbegun TakeAll();
  // The clients that wait, in this order.
  std::vector<Attempt> Clients() const;

 private:
  std::deque<WorkItem> items_;
};

}  // namespace macaw::worker
