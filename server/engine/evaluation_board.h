#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/attempt_table.h"
#include "server/engine/roster.h"
#include "server/engine/version_index.h"

namespace macaw::server {

// What an evaluated round yields: sums in an order that no worker decides.
struct EvaluationSums {
  Round round{};
  std::vector<double> central;  // over the central test set, added in chunk order; empty: not asked
  std::vector<double> train;    // over every client's training rows, by client id and chunk order
  struct ClientSums {
    ClientId client;
    std::vector<double> sums;
  };
  std::vector<Digest> states;       // of the sets of clients that were asked for
  std::vector<ClientId> given_up;   // whose state could not be read: they are in none of these
  std::vector<ClientSums> clients;  // every client's own test rows, by client id; empty: not asked
};

// The evaluation of one model, cut into tasks that depend on the configuration only (chunks of
// `chunk` rows of the central test set and of each client's training rows; one task for a client's
// test rows). A task is for those who have its rows: it waits in the queue of the central test set
// or of its client's holding. Tasks are leased, expire and come back like clients do, and a result
// counts once. Pure.
class EvaluationBoard {
 public:
  // What a worker may take from.
  using Queue = StrongId<struct EvaluationQueueTag, uint32_t>;
  static constexpr Queue Central() { return Queue(0); }
  static constexpr Queue Of(HoldingId holding) { return Queue(holding.value + 1); }

  EvaluationBoard() = default;  // nothing to do
  EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                  const Roster& roster);

  // Asks for the digests of a run's client states, a task for each range of clients of a holding.
  static EvaluationBoard OfStates(Round round, const VersionIndex& versions, const Roster& roster);

  Round round() const { return round_; }
  const fleet::Blob& model() const { return model_; }
  bool done() const { return finished_ == slots_.size(); }
  uint64_t waiting(Queue queue) const {
    return queue.value < queues_.size() ? queues_[queue.value].waiting : 0;
  }

  // Adds up to `count` of the queue's tasks to `taken`.
  void Take(WorkerId worker, Queue queue, size_t count, TimePoint expires, FenceSource& fences,
            std::vector<fleet::EvaluationTask>& taken);
  // The task of this result as it was leased to this worker; null where the worker does not hold it
  // (any more). What the result itself says of its task is only used to find it.
  const fleet::EvaluationTask* Find(WorkerId worker, const fleet::EvaluationResult& result) const;
  // False when the task is not current (given to somebody else since, or done).
  bool Complete(WorkerId worker, const fleet::EvaluationResult& result);
  // The task of this result cannot be done: the evaluation is complete without it.
  void GiveUp(WorkerId worker, const fleet::EvaluationResult& result);
  // The task of this result goes to somebody else, if there is anybody.
  void Refuse(WorkerId worker, const fleet::EvaluationResult& result);
  void Renew(WorkerId worker, TimePoint expires);
  size_t Expire(TimePoint now);  // tasks that came back
  size_t DropWorker(WorkerId worker);
  size_t Release(WorkerId worker, std::span<const Fence> tasks);  // given back undone
  // When to call Expire: not after the next task runs out, and seldom before.
  TimePoint NextExpiry() const { return by_fence_.empty() ? TimePoint::max() : next_expiry_; }

  EvaluationSums Report() const;  // once done()

 private:
  enum class State : uint8_t { kWaiting, kLeased, kDone, kGivenUp };
  struct Slot {
    fleet::EvaluationTask task;
    Queue queue;
    State state = State::kWaiting;
    WorkerId worker;
    TimePoint expires{};
    std::vector<double> sums;
    Digest digest;
  };
  struct Line {
    std::vector<size_t> slots;  // in the order to hand them out
    size_t next = 0;            // no waiting slot lies before it
    uint64_t waiting = 0;
  };
  void Add(Queue queue, fleet::EvaluationTask task);
  void Return(size_t slot);
  Slot* FindSlot(WorkerId worker, const fleet::EvaluationResult& result);

  Round round_{};
  fleet::Blob model_;
  std::vector<Slot> slots_;
  std::vector<Line> queues_;
  absl::flat_hash_map<uint64_t, size_t> by_fence_;  // leased slots
  // What each worker was given since it last held nothing: its leased slots, and done ones.
  absl::flat_hash_map<WorkerId, std::vector<size_t>> held_;
  TimePoint next_expiry_ = TimePoint::max();
  size_t finished_ = 0;
};

}  // namespace macaw::server
