#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "device/collective.h"
#include "proto/fleet/messages.h"
#include "worker/emulation.h"
#include "worker/lane.h"
#include "worker/phase.h"
#include "worker/running_marker.h"
#include "worker/work_queue.h"

namespace macaw::worker {

// What a worker has finished and not yet committed.
struct Harvest {
  std::shared_ptr<const PhaseContext> phase;  // null: no training
  std::vector<aggregation::ExactSum> sums;    // of the lanes that trained somebody
  std::vector<fleet::ClientRecord> included;
  std::vector<fleet::LeftOut> left_out;
  std::vector<ClientAlone> alone;  // each is a part of its own; in no other list
  std::vector<fleet::EvaluationResult> evaluations;
  bool empty() const {
    return included.empty() && left_out.empty() && alone.empty() && evaluations.empty();
  }
};

// The slots of a node and their queue, first in, first out. A slot is a place where one client is
// trained; a lane is a thread with a trainer that serves one slot, or several of a device
// (training::Backends::LanesFor). Lane i has the slots behind those of lane i − 1. Thread-safe;
// owned by a session.
class SlotPool {
 public:
  // Waits until every lane has its trainer, or returns the first error. All arguments must outlive
  // the pool.
  static absl::StatusOr<std::unique_ptr<SlotPool>> Start(const RunContext& context,
                                                         const data::Dataset& dataset,
                                                         uint32_t slots, EmulatedSlots emulated,
                                                         RunningMarker& marker);
  ~SlotPool();  // as Clear; joins the threads

  // Those of the assignments that train from the phase's model. All training that is queued, or not
  // yet taken by TakeHarvest, must belong to one phase; its models may be of several ages.
  // `leased`: when the lease arrived.
  void Enqueue(std::shared_ptr<const PhaseContext> phase,
               const std::vector<fleet::Assignment>& assignments, TimePoint leased);
  void Enqueue(std::shared_ptr<const EvaluationContext> evaluation,
               const std::vector<fleet::EvaluationTask>& tasks);

  // Blocks until at most `low` items are queued (returns true) or Interrupt is called (returns
  // false).
  bool WaitForQueueBelow(size_t low) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until nothing is queued and some slot is idle, or Interrupt is called.
  bool WaitForIdleSlot() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until nothing is queued or running, or Interrupt is called.
  bool WaitIdle() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, or a client is trained and waits for Arrive. Blocks until then, or Interrupt is
  // called.
  bool WaitIdleOrTrained() ABSL_LOCKS_EXCLUDED(mutex_);
  // Clients of phases that say `arrives`, which are trained and wait for Arrive. At most one: a
  // server leases a node no second one before the first has arrived, and Await reads its round from
  // the pool's one phase.
  std::vector<Attempt> Trained() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The round in which such a client counts, with the model from which it was trained; null: it
  // does not count any more, and the pool forgets it.
  void Arrive(const Attempt& attempt, std::shared_ptr<const PhaseContext> round)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);  // makes all waits return false until Clear

  // Returns all finished work and clears it. Call when idle. An error is a device's: this node
  // cannot go on.
  absl::StatusOr<Harvest> TakeHarvest() ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle() ABSL_LOCKS_EXCLUDED(mutex_);  // call when the harvest is committed or given up
  // The first error of a slot: this node cannot go on. The waits return false after an error.
  absl::Status error() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the queue and everything finished. What is running is not wanted any more, and waited
  // for: a trainer that notices ends it early.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes these from the queue where they have not started.
  void Drop(const std::vector<Attempt>& attempts) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes all work that has not started.
  Unbegun DropUnbegun() ABSL_LOCKS_EXCLUDED(mutex_);

  // Clients that were left out since the last call; the newest, if they are many.
  std::vector<fleet::LeftOut> TakeLeftOut() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Attempt> Queued() const ABSL_LOCKS_EXCLUDED(mutex_);  // not yet begun
  size_t held() const ABSL_LOCKS_EXCLUDED(mutex_);  // queued, running or trained, and not settled
  // Grows with every piece of work of the slots.
  uint64_t work_done() const;
  uint32_t idle() const ABSL_LOCKS_EXCLUDED(mutex_);  // slots for which nothing is queued
  // How many queued clients the slots will begin within `seconds`, estimated from recent clients
  // and rounded up. 0 before any client has finished.
  size_t QueueFor(double seconds) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SlotPool(const RunContext& context, const data::Dataset& dataset, uint32_t slots, uint32_t lanes,
           EmulatedSlots emulated, RunningMarker& marker);
  void Loop(uint32_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether lanes are to end what they have begun (WorkCounter::GiveUp).
  void GiveUp(bool give_up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<WorkItem> NextTurn(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTurn(uint32_t index, std::span<const WorkItem> turn) ABSL_LOCKS_EXCLUDED(mutex_);
  void Train(uint32_t index, std::span<const WorkItem> turn) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for Arrive of the client that the lane has trained. No round, too: the lane is to end it.
  Arrival Await(const Attempt& attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  void Evaluate(uint32_t index, const EvaluateItem& item) ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the slots busy for as long as the emulated hardware would.
  void Emulate(uint32_t index, const PhaseContext& phase, std::span<const LeasedClient> clients,
               Duration took);
  // Where lanes have several devices: what adds up across them.
  absl::Status MakeCollective();
  // What lanes added on their devices in this phase, as one sum.
  absl::StatusOr<std::optional<aggregation::ExactSum>> CollectDeviceSums(const PhaseContext& phase);
  // The first lanes have a slot more, if the lanes do not divide the slots.
  uint32_t SlotsOf(uint32_t lane) const { return slots_ / Lanes() + (lane < slots_ % Lanes()); }
  uint32_t FirstSlotOf(uint32_t lane) const {
    return lane * (slots_ / Lanes()) + std::min(lane, slots_ % Lanes());
  }
  uint32_t Lanes() const { return static_cast<uint32_t>(lanes_.size()); }

  const RunContext& context_;
  const data::Dataset& dataset_;
  const uint32_t slots_;
  const EmulatedSlots emulated_;
  RunningMarker& marker_;
  std::deque<WorkCounter> work_;  // by lane

  mutable absl::Mutex mutex_;
  WorkQueue queue_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // items
  size_t busy_lanes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t busy_slots_ ABSL_GUARDED_BY(mutex_) = 0;    // theirs
  size_t ready_ ABSL_GUARDED_BY(mutex_) = 0;         // lanes that made their trainer or failed
  double mean_seconds_ ABSL_GUARDED_BY(mutex_) = 0;  // moving mean per client; 0: none yet
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool giving_up_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PhaseContext> phase_ ABSL_GUARDED_BY(mutex_);
  std::vector<Attempt> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<Attempt> trained_ ABSL_GUARDED_BY(mutex_);  // and not arrived
  std::vector<fleet::EvaluationResult> evaluations_ ABSL_GUARDED_BY(mutex_);
  std::deque<fleet::LeftOut> left_out_ ABSL_GUARDED_BY(mutex_);  // for TakeLeftOut

  std::vector<std::optional<Lane>> lanes_;  // lanes_[i] belongs to thread i while it runs a turn
  std::unique_ptr<device::Collective> collective_;  // null: the lanes have one device, or none
  std::vector<std::thread> threads_;
};

}  // namespace macaw::worker
