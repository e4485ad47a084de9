#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// Fills slots over predicted time. Each client goes to the slot that would *finish* it first; with
// different speeds, this need not be the slot that is free first. If times are uncertain, a slot on
// which the client takes long must promise an earlier end (placement.cc). Workers with equal costs
// form a class, and for a client only the earliest slot of each class is considered: O(classes +
// log slots). Ties go to the lower worker and slot, so a placement is a function of its inputs. One
// owner.
class Placement {
 public:
  // All slots are free at 0.
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

 private:
  struct Slot {
    double free = 0;
    size_t worker = 0;
    uint32_t number = 0;
  };
  // Earliest first; slot ids grow with worker and number.
  using Order = std::set<std::pair<double, size_t>>;

  // A class of workers: its earliest slot, and its costs.
  struct Front {
    double free = 0;
    size_t slot = 0;
    double fixed = 0, state = 0, row = 0, step = 0, log_step = 0;
    double aversion = 0;
  };

  void Move(size_t slot, double until);

  std::vector<Slot> slots_;
  std::vector<size_t> first_slot_;  // of each worker
  std::vector<size_t> class_of_;    // of each worker
  std::vector<Front> fronts_;       // per class, contiguous because every client reads all of them
  std::vector<Order> order_;        // per class
};

}  // namespace macaw::scheduler
