#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/inputs.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/prepare.h"
#include "cli/sweep/story.h"

namespace macaw::cli {

// `macaw simulate --repeat N`: a sweep of one configuration, without keys, with the seeds run.seed,
// run.seed + 1, …. BASE is the run's folder without --repeat.
//   BASE-seedS/        the run with the seed S
//   BASE-repeat/       the folder of the sweep (folder.h)
//   BASE-repeat.json   which runs there are, and what they have achieved: for `macaw compare`
// The same command goes on with what is there and tries again what has failed. A larger N adds
// seeds; runs of other seeds that are over stay in the table. Returns the program's exit code;
// errors have been printed. Call on the main thread.
int Repeat(const SimulateOptions& options);

// Chooses BASE, locks its folder, and sets where the plan's runs are. If another experiment or
// other runs have the name `wanted`, takes BASE-2, BASE-3, …; with `fixed` (the user gave the name)
// it returns an error that says what differs. With `force` the experiment begins again in `wanted`,
// and the runs that are there are removed, unless a file of `inputs` is among theirs. While the
// lock is held, another process that begins the same takes the next name, or (`fixed`, `force`)
// gets an error.
absl::StatusOr<HeldSweep> OpenRepeat(const std::string& wanted, bool fixed, bool force,
                                     PreparedSweep& sweep,
                                     const std::vector<NamedInput>& inputs = {});

// The content of BASE-repeat.json: {"algorithm", "settings", "seeds", "runs": [{"folder", "seed",
// of a run that is done "end", "rounds", "seconds", "data_digest", "model_digest", "final"}],
// "metrics": {metric: {"mean", "std", "interval", "values"}}}.
std::string RepeatJson(const SweepPlan& plan, const ResultTable& table);

}  // namespace macaw::cli
