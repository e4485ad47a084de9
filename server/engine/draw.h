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

// Draws who trains in each round, and says what the engine needs to know of them. A function of
// configuration and roster, but for the clients' states.
class Draw {
 public:
  // After the roster has begun; both must outlive this.
  static absl::StatusOr<Draw> Make(const RunPlan& run, const Roster& roster);

  // By client; whom the run's straggler policy drops is missing.
  absl::StatusOr<std::vector<Seat>> Seats(Round round, const ClientStates& states) const;
  // Of the clients that can be drawn, and their rows.
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
