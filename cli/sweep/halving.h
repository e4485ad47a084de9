#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/sweep/folder.h"
#include "cli/sweep/plan.h"

namespace macaw::cli {

// How the runs of one configuration stand after a rung.
struct Standing {
  std::vector<std::optional<double>> values;  // of the metric, by seed; none: failed, or not there
  bool complete = false;                      // every seed has a value
  std::optional<double> mean;                 // of those that are there
};
Standing StandingOf(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
                    size_t configuration, size_t rung);

// Whether one configuration comes before another of the same rung: complete ones before others,
// then the better mean.
bool ComesBefore(const SweepPlan& plan, const Standing& a, const Standing& b);

// The configurations of a rung, in their order: all of the first; of each later one the best
// ceil(n / factor) of the rung before, without those whose runs have all failed. All jobs of the
// rungs before must be over.
std::vector<size_t> ConfigurationsOf(const SweepPlan& plan,
                                     const std::map<std::string, JobResult>& results, size_t rung);

// How many configurations a rung has at most.
size_t MostOf(const SweepPlan& plan, size_t rung);

}  // namespace macaw::cli
