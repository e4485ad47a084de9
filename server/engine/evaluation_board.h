#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/run_config.h"
#include "proto/fleet/messages.h"
#include "server/engine/attempt_table.h"
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
  std::vector<Digest> states;       // of the ranges of clients that were asked for, in order
  std::vector<ClientSums> clients;  // every client's own test rows, by client id; empty: not asked
};

// The evaluation of one model, cut into tasks that depend on the configuration only (chunks of
// `chunk` rows of the central test set and of each client's training rows; one task for a client's
// test rows). Tasks are leased, expire and come back like clients do, and a
// result counts once. Pure.
class EvaluationBoard {
 public:
  EvaluationBoard() = default;  // nothing to do
  // `train_rows`: of each client.
  EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                  uint64_t central_rows, std::span<const uint32_t> train_rows);

  // Asks for the digests of a run's client states, a task for each range of clients.
  static EvaluationBoard OfStates(Round round, const VersionIndex& versions);

  Round round() const { return round_; }
  const fleet::Blob& model() const { return model_; }
  bool active() const { return !slots_.empty(); }
  bool done() const { return finished_ == slots_.size(); }
  uint64_t waiting() const { return slots_.size() - finished_ - leased_; }

  std::vector<fleet::EvaluationTask> Take(WorkerId worker, size_t count, TimePoint expires,
                                          FenceSource& fences);
  // The task of this result as it was leased to this worker; null where the worker does not hold it
  // (any more). What the result itself says of its task is only used to find it.
  const fleet::EvaluationTask* Find(WorkerId worker, const fleet::EvaluationResult& result) const;
  // False when the task is not current (given to somebody else since, or done).
  bool Complete(WorkerId worker, const fleet::EvaluationResult& result);
  void Renew(WorkerId worker, TimePoint expires);
  size_t Expire(TimePoint now);  // tasks that came back
  size_t DropWorker(WorkerId worker);
  size_t Release(WorkerId worker, std::span<const Fence> tasks);  // given back undone
  TimePoint NextExpiry() const;

  EvaluationSums Report() const;  // once done()

 private:
  enum class State : uint8_t { kWaiting, kLeased, kDone };
  struct Slot {
    fleet::EvaluationTask task;
    State state = State::kWaiting;
    WorkerId worker;
    TimePoint expires{};
    std::vector<double> sums;
    Digest digest;
  };
  template <typename Condition>
  size_t Return(const Condition& condition);

  Round round_{};
  fleet::Blob model_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<uint64_t, size_t> by_fence_;  // leased slots
  size_t next_ = 0;                                 // no waiting slot lies before it
  size_t finished_ = 0;
  size_t leased_ = 0;
};

}  // namespace macaw::server
