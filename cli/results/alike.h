#pragma once

#include <vector>

#include "cli/results/result.h"

namespace macaw::cli {

// Completes the settings of runs that are compared, so that those of one configuration have equal
// settings and others do not:
//   a seed that equals its run's is named where other runs of the configuration have it fixed
//   files of one name and other contents have their digests beside their names; so has what a run
//   names in `inputs` alone, and not in its settings: a program's own functions
void TellApart(std::vector<RunResult>& runs);

}  // namespace macaw::cli
