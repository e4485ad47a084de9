#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "server/engine/client_states.h"
#include "server/engine/phase.h"
#include "server/engine/roster.h"

namespace macaw::server {

// Draws the clients that train in each round, with what the engine needs to know of each. Depends
// only on the configuration, the roster and, for Seat::state, the current client states.
class Draw {
 public:
  // Call it after Roster::Begin. `run` and `roster` must outlive the result.
  static absl::StatusOr<Draw> Make(const RunPlan& run, const Roster& roster);

  // The seats, by client id. Clients that the run's straggler policy drops are not among them.
  absl::StatusOr<std::vector<Seat>> Seats(Round round, const ClientStates& states) const;
  // Digest of the clients that can be drawn and of their rows.
  const Digest& eligible() const { return eligible_; }

 private:
  Draw(const RunPlan& run, const Roster& roster, std::unique_ptr<scheduler::CohortSampler> sampler,
       const Digest& eligible)
      : run_(&run), roster_(&roster), sampler_(std::move(sampler)), eligible_(eligible) {}
  double WeightOf(ClientId client) const;
  uint64_t StepsOf(Round round, const scheduler::CohortEntry& entry) const;

  const RunPlan* run_;
  const Roster* roster_;
  std::unique_ptr<scheduler::CohortSampler> sampler_;
  Digest eligible_;
};

}  // namespace macaw::server
