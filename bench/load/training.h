#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/around/registry.h"
#include "core/executor.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "training/backends.h"
#include "worker/lane.h"
#include "worker/phase.h"

namespace macaw::bench {

// What a registration fixes, for all devices together, and the two threads on which they train.
// Thread-safe.
class Training {
 public:
  // The dataset has the rows of all devices, and must outlive this. Ends the program on an error.
  Training(const RunPlan& run, const data::Dataset& dataset);

  const NumericProfile& profile() const { return profile_; }

  std::shared_ptr<worker::PhaseContext> Open(const fleet::TrainingLease& lease) const;
  // Once the broadcast's bytes are there.
  void ReadBroadcast(worker::PhaseContext& phase) const;

  // Trains the clients on one of the threads and returns the part.
  fleet::Part Train(const worker::PhaseContext& phase,
                    const std::vector<fleet::Assignment>& assignments, size_t device);

 private:
  static constexpr size_t kTrainers = 2;
  struct Trainer {
    WorkCounter work;
    std::optional<worker::Lane> lane;
    Executor executor{"trainer", 1};  // destroyed first
  };
  const data::Dataset& dataset_;
  training::Backends backends_;
  algorithms::Registry registry_;
  worker::RunContext context_;
  NumericProfile profile_;
  Trainer trainers_[kTrainers];
};

}  // namespace macaw::bench
