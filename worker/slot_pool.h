#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "proto/fleet/messages.h"
#include "worker/emulation.h"
#include "worker/phase.h"
#include "worker/running_marker.h"
#include "worker/slot.h"

namespace macaw::worker {

// What a worker has finished and not yet committed.
struct Harvest {
  std::shared_ptr<const PhaseContext> phase;  // null: no training
  std::optional<aggregation::ExactSum> sum;   // of all slots; unset when nobody is included
  std::vector<fleet::ClientRecord> included;
  std::vector<fleet::LeftOut> left_out;
  std::vector<fleet::EvaluationResult> evaluations;
  bool empty() const { return included.empty() && left_out.empty() && evaluations.empty(); }
};

// Where in an emulated run these slots stand (worker/emulation.h).
struct EmulatedSlots {
  EmulationConfig config;
  uint32_t first_slot = 0;
  uint32_t run_slots = 1;
};

// The slots' threads and the queue they take from, first come first served. Thread-safe; owned by a
// session.
class SlotPool {
 public:
  // Waits until every slot has its replica, or returns the first error. What it is given must
  // outlive it.
  static absl::StatusOr<std::unique_ptr<SlotPool>> Start(const RunContext& context,
                                                         const data::Dataset& dataset,
                                                         uint32_t slots, EmulatedSlots emulated,
                                                         RunningMarker& marker);
  ~SlotPool();  // drops what is queued, lets what is running finish, joins

  // All training that is queued or unharvested must belong to one phase. `leased`: when the lease
  // arrived.
  void Enqueue(std::shared_ptr<const PhaseContext> phase,
               const std::vector<fleet::Assignment>& assignments, TimePoint leased);
  void Enqueue(std::shared_ptr<const EvaluationContext> evaluation,
               const std::vector<fleet::EvaluationTask>& tasks);

  // Blocks until at most `low` items wait in the queue (0 … ) or Interrupt is called; then tells
  // which.
  bool WaitForQueueBelow(size_t low) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until nothing is queued and some slot is idle, or Interrupt is called.
  bool WaitForIdleSlot() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until nothing is queued or running, or Interrupt is called.
  bool WaitIdle() ABSL_LOCKS_EXCLUDED(mutex_);
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);  // makes both waits return false until Clear

  // Takes everything finished; call when idle. The first error of an evaluation is returned
  // instead.
  absl::StatusOr<Harvest> TakeHarvest() ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle() ABSL_LOCKS_EXCLUDED(mutex_);  // the harvest is committed, or given up
  // The first error of a slot: this node cannot go on. The waits return false once there is one.
  absl::Status error() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the queue and everything finished; waits for what is running.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes these from the queue where they have not started.
  void Drop(const std::vector<Attempt>& attempts) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<Attempt> Queued() const ABSL_LOCKS_EXCLUDED(mutex_);  // not yet begun
  size_t held() const ABSL_LOCKS_EXCLUDED(mutex_);  // queued, running or trained, and not settled
  // Grows with whatever the slots do.
  uint64_t work_done() const;
  uint32_t idle() const ABSL_LOCKS_EXCLUDED(mutex_);  // slots for which nothing is queued
  // How many queued clients the slots will have begun after `seconds`, by what clients took lately;
  // 0 before there were any.
  size_t QueueFor(double seconds) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct TrainItem {
    std::shared_ptr<const PhaseContext> phase;
    fleet::Assignment assignment;
    TimePoint leased{};
  };
  struct EvaluateItem {
    std::shared_ptr<const EvaluationContext> evaluation;
    fleet::EvaluationTask task;
  };
  using Item = std::variant<TrainItem, EvaluateItem>;

  SlotPool(const RunContext& context, const data::Dataset& dataset, uint32_t slots,
           EmulatedSlots emulated, RunningMarker& marker);
  void Loop(uint32_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunItem(uint32_t index, Slot& slot, const Item& item) ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the slot busy for as long as the emulated hardware would.
  void Emulate(uint32_t index, Slot& slot, const TrainItem& train, Duration took);

  const RunContext& context_;
  const data::Dataset& dataset_;
  const EmulatedSlots emulated_;
  RunningMarker& marker_;
  std::deque<WorkCounter> work_;  // by slot

  mutable absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t ready_ ABSL_GUARDED_BY(mutex_) = 0;         // slots that have their replica, or failed to
  double mean_seconds_ ABSL_GUARDED_BY(mutex_) = 0;  // of a client, moving; 0: none yet
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PhaseContext> phase_ ABSL_GUARDED_BY(mutex_);
  std::vector<Attempt> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<fleet::EvaluationResult> evaluations_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::optional<Slot>> slots_;  // slots_[i] belongs to thread i while it runs an item
  std::vector<std::thread> threads_;
};

}  // namespace macaw::worker
