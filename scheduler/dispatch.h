#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/ids.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// Hands a plan out piece by piece ("guided": half of what is left to a worker, never less than a
// client a slot or `least_load`, where a smaller piece would cost more to ask for than to train),
// so that early pieces are large and cheap to lease and late ones small enough to even out wrong
// predictions. A worker whose queue is dry takes clients from the queue that would finish last.
// Only clients not yet handed out are ever moved. Pure; one owner.
class DispatchQueue {
 public:
  DispatchQueue() = default;
  explicit DispatchQueue(const Plan& plan);

  // The next piece for a worker, in the order to train; empty when nothing is left. A worker that
  // the plan does not know (it joined later) takes from others.
  std::vector<CohortEntry> Take(WorkerId worker, uint32_t slots, uint64_t least_load = 0);

  // Puts a client back (its lease ended without a result). It goes out again before anything else,
  // to anybody.
  void PutBack(const CohortEntry& entry);

  // Hands a lost worker's queue to the others.
  void RemoveWorker(WorkerId worker);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // What would go out next to this worker, without taking it.
  std::vector<ClientId> Peek(WorkerId worker, size_t count) const;

 private:
  struct Queue {
    std::deque<CohortEntry> entries;
    uint64_t load = 0;
    uint32_t slots = 1;
  };
  static CohortEntry PopFront(Queue& queue);
  static CohortEntry PopBack(Queue& queue);
  Queue* MostLoaded();

  std::map<WorkerId, Queue> queues_;
  std::deque<CohortEntry> returned_;
  size_t size_ = 0;
};

}  // namespace macaw::scheduler
