#pragma once

#include "absl/status/status.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/plan.h"
#include "cli/sweep/sweep_file.h"

namespace macaw::cli {

// What decides a sweep and what is shown beside it, as the file says or, where it does not, as one
// of its runs has it: validation rows decide where there are some, and then the metric of test rows
// is shown. Sets metric, higher and report of the plan.
void ChooseMetrics(const SweepSettings& settings, const CheckedRun& run, SweepPlan& plan);

// Returns an error unless the run will have the plan's metric and what the file wants reported.
absl::Status CheckMetrics(const SweepSettings& settings, const CheckedRun& run,
                          const SweepPlan& plan);

}  // namespace macaw::cli
