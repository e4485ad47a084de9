#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/results/table.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/plan.h"

namespace macaw::cli {

// A run that has no value of the plan's metric. A sweep's own metric is in all runs, unless they
// diverge; another one need not be.
enum class Lacking : uint8_t { kFails, kIsDone };

// The runs of one configuration as they stand after a rung (of a sweep without halving: the only
// one), with the values of these metrics. A run whose value of the plan's metric is not finite has
// failed, and one without a value as `lacking` says. The runs have no folders yet.
TableRow RowAt(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
               size_t configuration, size_t rung, const std::vector<std::string>& metrics,
               Lacking lacking = Lacking::kFails);

// The configurations of a rung, in their order: all of the first; of each later one the best
// ceil(n / factor) of the rung before, without those whose runs have all failed. Baselines take no
// part in this: all of them are in the last rung, and in no other. All jobs of the rungs before
// must be over.
std::vector<size_t> ConfigurationsOf(const SweepPlan& plan,
                                     const std::map<std::string, JobResult>& results, size_t rung);

// How many configurations a rung has at most, with the baselines of the last one.
size_t MostOf(const SweepPlan& plan, size_t rung);

}  // namespace macaw::cli
