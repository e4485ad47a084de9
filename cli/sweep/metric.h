#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/plan.h"
#include "cli/sweep/sweep_file.h"

namespace macaw::cli {

// Sets metric, higher and report of the plan, as the file says. Where it does not, validation rows
// decide where there are some, and then the metric of test rows is shown beside. `runs`: one of
// each rule; the metric is one that all of them have. A metric of the common model that the file
// names, and that some rule lacks because it has no common model, gives way to the same metric of
// the clients' rows (MetricNote). Returns an error if only a metric of training rows is common to
// rules that have others, such as to "fedavg" and "local".
absl::Status ChooseMetrics(const SweepSettings& settings, const std::vector<CheckedRun>& runs,
                           SweepPlan& plan);

// Says that the plan's metric is another than the file's, and why; "": it is not.
std::string MetricNote(const SweepSettings& settings, const SweepPlan& plan);

// Returns an error unless the run will have the plan's metric and what the file wants reported.
absl::Status CheckMetrics(const SweepSettings& settings, const CheckedRun& run,
                          const SweepPlan& plan);

}  // namespace macaw::cli
