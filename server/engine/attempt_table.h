#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// Hands out fences: never the same twice, and those of an earlier server start are recognised by
// their epoch.
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
// A part is accepted whole, if every attempt in it is current and held by the worker that commits
// it, or refused whole. Pure and single-threaded; everything else in the engine is built around
// this table.
class AttemptTable {
 public:
  enum class State : uint8_t { kQueued, kLeased, kCounted, kGivenUp };

  explicit AttemptTable(std::span<const ClientId> clients);

  // The client must be queued.
  Attempt Lease(ClientId client, WorkerId worker, TimePoint expires, FenceSource& fences);

  // The client must be queued: leased again as an earlier server had leased it.
  void Restore(const Attempt& attempt, WorkerId worker, TimePoint expires);

  // Moves the expiry of everything the worker holds.
  void Renew(WorkerId worker, TimePoint expires);
  // Those of `attempts` that the worker does not hold (any more).
  std::vector<Attempt> NotHeld(WorkerId worker, std::span<const Attempt> attempts) const;

  // Each of these puts leased clients back into `queued` and returns the attempts that ended.
  // Expire adds to `late` whose leases they were, each once.
  std::vector<Attempt> Expire(TimePoint now, std::vector<WorkerId>& late);
  std::vector<Attempt> DropWorker(WorkerId worker);
  std::vector<Attempt> Release(WorkerId worker, std::span<const Attempt> attempts);

  // Whether `worker` may commit exactly these attempts: an error names the first that is not
  // current, or is named twice. Changes nothing.
  absl::Status Judge(WorkerId worker, std::span<const Attempt> attempts) const;
  // After Judge said yes: the attempts are in the round's result, or will never be.
  void Count(std::span<const Attempt> attempts);
  void GiveUp(std::span<const Attempt> attempts);
  // The client must be queued: its round does without it, and nobody is leased it.
  void GiveUpQueued(ClientId client);

  // When to call Expire: not after the next lease runs out, and seldom before. TimePoint::max()
  // when nothing is leased. These two cost the same for any cohort.
  TimePoint NextExpiry() const { return leased_ > 0 ? next_expiry_ : TimePoint::max(); }
  uint64_t leased_to(WorkerId worker) const;
  State StateOf(ClientId client) const;
  bool closed() const {
    return queued_ == 0 && leased_ == 0;
  }  // every client is counted or given up
  uint64_t queued() const { return queued_; }
  uint64_t leased() const { return leased_; }
  uint64_t counted() const { return counted_; }
  uint64_t given_up() const { return given_up_; }
  // Clients still in the round after it closed: those not given up, in the order given at
  // construction.
  std::vector<ClientId> Remaining() const;

 private:
  struct Entry {
    State state = State::kQueued;
    Fence fence;
    WorkerId worker;
    TimePoint expires{};
  };
  const Entry* FindCurrent(WorkerId worker, const Attempt& attempt) const;
  template <typename Condition>
  std::vector<Attempt> Requeue(const Condition& condition);
  void Settle(std::span<const Attempt> attempts, State state, uint64_t& counter);
  void EndLease(Entry& entry, State state);
  void FindNextExpiry();

  std::vector<ClientId> clients_;
  absl::flat_hash_map<ClientId, Entry> entries_;
  absl::flat_hash_map<WorkerId, uint64_t> held_;  // leases of each
  TimePoint next_expiry_ = TimePoint::max();
  uint64_t queued_ = 0, leased_ = 0, counted_ = 0, given_up_ = 0;
};

}  // namespace macaw::server
