#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/run_plan.h"
#include "server/engine/draw.h"
#include "server/engine/roster.h"

namespace macaw::server {

// Compares the totals of a run's plan (run.train_clients and the total of cohort.weight) with those
// of the clients that have registered and can be drawn. A simulation's agree. A fleet's plan may
// have been made on other data.
//
// An error: they differ, and the run depends on one that does (`used`); it says which number to
// write. Else a warning in words, empty if they agree or if the plan does not give them.
absl::StatusOr<std::string> CompareTotals(const RunPlan& run, TotalsUsed used, const Draw& draw,
                                          const Roster& roster);

// The names of those groups of evaluation.groups without a client that has test rows: their columns
// are null. The roster has begun with these groups.
std::vector<std::string> EmptyGroups(const NamedGroups& groups, const Roster& roster);

}  // namespace macaw::server
