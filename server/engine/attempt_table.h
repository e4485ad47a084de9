#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "server/engine/deadlines.h"

namespace macaw::server {

// Hands out fences. No fence is handed out twice. The epoch tells the fences of an earlier server
// start from those of this one.
class FenceSource {
 public:
  explicit FenceSource(uint32_t epoch) : epoch_(epoch) {}
  Fence Next() { return {epoch_, ++counter_}; }

 private:
  uint32_t epoch_;
  uint64_t counter_ = 0;
};

// The state of every client of one (round, phase):
//
//          Lease                 Judge: part accepted
//   queued ------> leased(attempt) ------> counted
//     ^  <-----------'      '------------> given up   (left out by the part that was accepted)
//     expired, worker lost, released, part refused
//
// The server itself can give up a client in any state.
//
// A part is accepted whole or refused whole. It is accepted if every attempt in it is current and
// held by the worker that commits it. Pure and single-threaded. Everything else in the engine is
// built around this table.
class AttemptTable {
 public:
  enum class State : uint8_t { kQueued, kLeased, kCounted, kGivenUp };

  explicit AttemptTable(std::span<const ClientId> clients);

  // The client must be queued.
  Attempt Lease(ClientId client, WorkerId worker, TimePoint expires, FenceSource& fences);

  // Leases the client again, exactly as an earlier server had leased it. The client must be queued.
  void Restore(const Attempt& attempt, WorkerId worker, TimePoint expires);

  // Sets the expiry of all leases of the worker.
  void Renew(WorkerId worker, TimePoint expires);
  // Returns those of `attempts` that the worker does not hold, or no longer holds.
  std::vector<Attempt> NotHeld(WorkerId worker, std::span<const Attempt> attempts) const;

  // A lease that has expired.
  struct Late {
    WorkerId worker;
    Attempt attempt;
  };
  // Each of these puts leased clients back into `queued` and returns the attempts that ended.
  // Expire: by worker and client; the others: by client.
  std::vector<Late> Expire(TimePoint now);
  std::vector<Attempt> DropWorker(WorkerId worker);
  std::vector<Attempt> Release(WorkerId worker, std::span<const Attempt> attempts);

  // Says whether `worker` may commit exactly these attempts. An error names the first attempt that
  // is not current or is listed twice. Changes nothing.
  absl::Status Judge(WorkerId worker, std::span<const Attempt> attempts) const;
  // Call these only after Judge returned OK. Count: the attempts are in the round's result. GiveUp:
  // they will never be in it.
  void Count(std::span<const Attempt> attempts);
  void GiveUp(std::span<const Attempt> attempts);
  // Gives up a client that nobody has leased. The client must be queued.
  void GiveUpQueued(ClientId client);
  // Gives up every client, also those that were counted.
  void GiveUpAll();

  // When to call Expire: never later than the next expiry of a lease, and seldom earlier.
  // TimePoint::max() when nothing is leased. This and leased_to take constant time.
  TimePoint NextExpiry() const { return leased_ > 0 ? expiries_.next() : TimePoint::max(); }
  uint64_t leased_to(WorkerId worker) const;
  std::vector<WorkerId> Holders() const;  // the workers that have leases, in order
  State StateOf(ClientId client) const;
  // The client's current attempt and the worker that holds it. The client must be leased.
  std::pair<Attempt, WorkerId> LeaseOf(ClientId client) const;
  bool closed() const {
    return queued_ == 0 && leased_ == 0;
  }  // every client is counted or given up
  uint64_t queued() const { return queued_; }
  uint64_t leased() const { return leased_; }
  uint64_t counted() const { return counted_; }
  uint64_t given_up() const { return given_up_; }
  // A lease that has not ended.
  struct Held {
    Attempt attempt;
    WorkerId worker;
    TimePoint expires{};
  };
  std::vector<Held> Leases() const;  // in the order of the clients
  // The clients that were not given up, in the order given to the constructor. Call it after the
  // phase has closed.
  std::vector<ClientId> Remaining() const;

 private:
  struct Entry {
    State state = State::kQueued;
    Fence fence;
    WorkerId worker;
    TimePoint expires{};
  };
  const Entry* FindCurrent(WorkerId worker, const Attempt& attempt) const;
  void Settle(std::span<const Attempt> attempts, State state, uint64_t& counter);
  void EndLease(ClientId client, Entry& entry, State state);

  std::vector<ClientId> clients_;
  absl::flat_hash_map<ClientId, Entry> entries_;
  absl::flat_hash_map<WorkerId, absl::btree_set<ClientId>> held_;  // no entry: none
  Deadlines<WorkerId> expiries_;  // of each worker: when the first of its leases expires
  uint64_t queued_ = 0, leased_ = 0, counted_ = 0, given_up_ = 0;
};

}  // namespace macaw::server
