#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plan/run_plan.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/messages.h"
#include "server/engine/engine_options.h"
#include "server/engine/roster.h"

namespace macaw::server {

// What a node would join. All of it must outlive the check.
struct JoinedRun {
  const EngineOptions& options;
  bool live = false;  // devices arrive when they are ready (RoundEngine)
  const Roster& roster;
  const std::vector<NumericProfile>& profiles;  // of the nodes that have joined
};

// Checks whether a node can take part in the run: its program, its data and its numeric profile.
// The error names the node, says what does not fit, and what to do. Changes nothing.
absl::Status CheckNode(const JoinedRun& to, const fleet::RegisterRequest& request,
                       const fleet::ClientTable& table);

std::string ToString(const NumericProfile& profile);

}  // namespace macaw::server
