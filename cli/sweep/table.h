#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare/text.h"
#include "cli/simulate/statistics.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/halving.h"
#include "cli/sweep/plan.h"

namespace macaw::cli {

// The results of a sweep, a row a configuration, the best first. Configurations that reached a
// later rung come before others; of one rung ComesBefore decides.
struct SweepTable {
  struct Row {
    size_t configuration = 0;
    size_t rung = 0;      // the last one that its runs have finished
    uint32_t rounds = 0;  // of that rung
    Standing standing;
    Estimate estimate;             // of the values that are there
    std::vector<Estimate> report;  // parallel to SweepPlan::report, of the same runs
    size_t failed = 0, open = 0;   // runs that failed, and that are not over
    // With the best configuration, over the seeds that both have; none for the best itself.
    std::optional<PairedComparison> against_best;
    std::optional<double> p_holm;  // of against_best, Holm's over all rows
  };
  std::vector<Row> rows;
  std::optional<size_t> best;             // a configuration; none: no run is over
  size_t runs = 0, done = 0, failed = 0;  // done: of those that do not go on to a further rung
};

SweepTable MakeTable(const SweepPlan& plan, const std::map<std::string, JobResult>& results);

// For people: columns aligned, then how to read them, and why runs failed.
std::string SweepTableText(const SweepPlan& plan, const SweepTable& table,
                           const std::map<std::string, JobResult>& results);

// For programs: one line a configuration, in the order of the table. Nothing that was measured with
// a clock is in it, unless the metric was.
std::string SweepTableCsv(const SweepPlan& plan, const SweepTable& table);

// The same as JSON, with each run: {"metric", "mode", "report", "rows_of_metric",
// "keys", "runs", "done", "failed", "best", "rows": [{"configuration", "values": {key: value},
// "rounds", "mean", "std", "interval": [low, high], "report": {metric: {"mean", "std"}},
// "against_best": {"difference", "interval", "p", "p_holm", "seeds"}, "runs": [{"name", "seed",
// "folder", "state", "value", "why"}]}]}. What is not there is null.
std::string SweepTableJson(const SweepPlan& plan, const SweepTable& table,
                           const std::map<std::string, JobResult>& results,
                           const SweepFolder& folder);

// "local.lr 0.1, algorithm.name fedprox"
std::string SettingsText(const SweepPlan& plan, const Configuration& configuration);

}  // namespace macaw::cli
