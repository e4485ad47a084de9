#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// Slots filling up over predicted time: each client goes to the slot that would *finish* it first,
// which on slots of different speed is not the slot that is free first; where times are uncertain,
// a slot on which the client takes long has to finish it sooner by some of that uncertainty.
// Workers with equal costs form a class; a client looks at the earliest slot of each class and at
// those of the workers that hold its state or its data: O(classes + log slots). Ties go to the
// lower worker and slot, so that a placement is a function of its inputs. One owner.
class Placement {
 public:
  // `workers` must outlive it; all slots are free at 0.
  explicit Placement(std::span<const WorkerInfo> workers);

  struct Turn {
    size_t worker = 0;  // index into `workers`
    uint32_t slot = 0;
    double start = 0, finish = 0;
  };
  // Requires a slot.
  Turn Put(const CohortEntry& entry);
  void Occupy(size_t worker, uint32_t slot, double until);

  size_t slots() const { return slots_.size(); }
  double latest() const { return latest_; }  // when the last slot is free

 private:
  struct Slot {
    double free = 0;
    size_t worker = 0;
    uint32_t number = 0;
  };
  // Earliest first; slot ids grow with worker and number.
  using Order = std::set<std::pair<double, size_t>>;

  // A class as a client meets it: its earliest slot, and its costs.
  struct Front {
    double free = 0;
    size_t slot = 0;
    double fixed = 0, row = 0, step = 0, log_step = 0;
    double aversion = 0;
    const Costs* costs = nullptr;
  };

  void Move(size_t slot, double until);

  std::span<const WorkerInfo> workers_;
  std::vector<Slot> slots_;
  std::vector<size_t> first_slot_;  // of each worker
  std::vector<size_t> class_of_;    // of each worker
  std::vector<Front> fronts_;       // of each class, side by side: all are read for each client
  std::vector<Order> order_;        // of each class
  double latest_ = 0;
};

}  // namespace macaw::scheduler
