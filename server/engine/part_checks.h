#pragma once

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/open_phase.h"
#include "server/engine/roster.h"

namespace macaw::server {

// Checks a part against the leases of its attempts: weights, rows, metrics and steps are bounded by
// the work that was handed out. Call it after OpenPhase::Judge. `keeps_states`: whether the run's
// algorithm keeps client states. The error names the client and the reason. Changes nothing.
absl::Status CheckPart(const RunPlan& run, bool keeps_states, const OpenPhase& phase,
                       const fleet::Part& part);

// Checks the result of an evaluation task in the same way. `roster`: has begun. `models`: of the
// rule, from which a client chooses.
absl::Status CheckEvaluation(const RunPlan& run, const Roster& roster, bool keeps_states,
                             const fleet::EvaluationTask& task,
                             const fleet::EvaluationResult& result, uint32_t models = 1);

inline bool NamesAnybody(const fleet::Part& part) {
  return !part.included.empty() || !part.left_out.empty();
}

// The attempts of a part: included clients first, then those left out.
std::vector<Attempt> AttemptsOf(const fleet::Part& part);

}  // namespace macaw::server
