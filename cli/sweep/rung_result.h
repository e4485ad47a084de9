#pragma once

#include <optional>

#include "cli/results/result.h"
#include "cli/sweep/jobs.h"

namespace macaw::cli {

// The result of the task's run, if it is over: it has done the task's rounds, or it does no more of
// them, stopped by its own rule or at the end of its privacy budget. Of a run that cannot be read,
// nullopt.
std::optional<RunResult> FinishedRun(const Task& task);

// Whether a later rung can go on from the end of this run, if there is one. The last checkpoint is
// written after the result, and a kill may have come between them.
bool CanGoOn(const RunResult& result, const Task& task);

}  // namespace macaw::cli
