#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/results/result.h"
#include "cli/results/table.h"

namespace macaw::cli {

// Reads the runs that these paths stand for (run_paths.h); of sweeps and repeats those that have a
// result. Errors name the folder and what is missing in it.
struct RunsRead {
  std::vector<RunResult> runs;
  std::vector<std::string> left_out;  // notes on the others
};
absl::StatusOr<RunsRead> ReadRuns(const std::vector<std::string>& paths);

// What chooses, beside the metrics that are shown.
struct CompareChoice {
  std::string select;  // each run's round by this metric: shows its best, and test values there
  std::string paired;  // compares each row's values of this metric with those of the best row
};

// A table with a row for runs with equal settings (alike.h), whatever their seeds, ordered by their
// first runs. A metric is a column of metrics.jsonl, "best_" and a metric of test rows,
// "rounds_to_" and an accuracy (0.5, 0.8, 0.9, 0.95, 0.99), "seconds", "rounds_per_second",
// "total_bytes_up", "total_bytes_down", "total_virtual_seconds", or "bytes_up_to_",
// "bytes_down_to_" or "virtual_seconds_to_" and an accuracy. No metrics: those of test rows and the
// training loss. For an unknown metric the error lists what there is. `registry` knows the defaults
// of parameters.
absl::StatusOr<ResultTable> Compare(std::vector<RunResult> runs, std::vector<std::string> metrics,
                                    const algorithms::Registry& registry,
                                    const CompareChoice& choice = {});

// What is shown of runs where nothing is named: metrics of test and validation rows, and the
// training loss, as far as some run has them.
std::vector<std::string> UsualMetrics(const std::vector<RunResult>& runs);

// Notes for a table: runs that did not reach their end, and results far under their best.
std::vector<std::string> NotesOn(const std::vector<RunResult>& runs);

// Returns an error unless `metric` is one of `known`; it names the nearest, and what there is.
absl::Status CheckKnownMetric(const std::string& metric, const std::vector<std::string>& known);

}  // namespace macaw::cli
