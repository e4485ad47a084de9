#pragma once

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/open_phase.h"

namespace macaw::server {

// Whether a part reports what its attempts were leased for: weights, rows, metrics and steps are
// bounded by what was handed out. Call it after OpenPhase::Judge. `keeps_states`: the run's
// algorithm does. The error says which client and why; changes nothing.
absl::Status CheckPart(const RunPlan& run, bool keeps_states, const OpenPhase& phase,
                       const fleet::Part& part);

// Likewise the result of an evaluation task.
absl::Status CheckEvaluation(const RunPlan& run, bool keeps_states,
                             const fleet::EvaluationTask& task,
                             const fleet::EvaluationResult& result);

// Included first, then left out.
std::vector<Attempt> AttemptsOf(const fleet::Part& part);

}  // namespace macaw::server
