#pragma once

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "server/engine/roster.h"

// What a plan asks of its clients, once they have registered. Of a simulation it is refused before
// the run (cli/config/resolve.cc); a fleet's plan is resolved before its clients are known.
namespace macaw::server {

// `resumed`: the run has rounds behind it, with which its nodes were enough.
absl::Status CheckAtBegin(const EvaluationConfig& evaluation, const Roster& roster, bool resumed);

}  // namespace macaw::server
