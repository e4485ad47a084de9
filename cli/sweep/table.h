#pragma once

#include <map>
#include <string>

#include "cli/results/table.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/plan.h"

namespace macaw::cli {

// The results of a sweep as far as they are there: a row a configuration, the best first. While the
// runs of a configuration are at a rung, its row shows the rung before. A sweep of one
// configuration shows every column of its runs.
ResultTable MakeTable(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
                      const SweepFolder& folder);

// The same runs by another metric. Who has gone on in a halving stays what the plan's has decided.
struct ShownMetric {
  std::string name;
  bool higher = true;  // more of it is better
};
ResultTable MakeTable(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
                      const SweepFolder& folder, const ShownMetric& shown);

// "local.lr 0.1, algorithm.name fedprox"
std::string SettingsText(const SweepPlan& plan, const Configuration& configuration);

}  // namespace macaw::cli
