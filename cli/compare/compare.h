#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/simulate/result.h"

namespace macaw::cli {

// A table of runs: one row per configuration, over its seeds.
struct Comparison {
  struct Row {
    std::vector<std::string> settings;          // parallel to `keys`; "-": its rule has no such key
    std::vector<RunResult> runs;                // by seed; each seed once
    std::vector<std::optional<Spread>> values;  // parallel to `metrics`; empty if a run lacks it
    // With the best row, over common seeds; none: it is the best, or nothing is paired.
    std::optional<PairedComparison> against_best;
    std::optional<double> p_holm;  // Holm's, over all rows
  };
  std::string paired;                // the metric of against_best; "": none
  std::vector<std::string> keys;     // what differs: "algorithm.name", "local.lr", …
  std::vector<std::string> equal;    // settings that all rows share: "local.lr 0.05"
  std::vector<std::string> metrics;  // columns of metrics.jsonl (their last value), and others
  std::vector<Row> rows;             // ordered by their first runs
  std::vector<std::string> notes;    // what a reader of the table must know; whole sentences
};

// Reads the runs in these folders; a file NAME-repeat.json stands for the runs that it lists.
// Errors name the folder and what is missing in it.
absl::StatusOr<std::vector<RunResult>> ReadRuns(const std::vector<std::string>& paths);

// What chooses, beside the metrics that are shown.
struct CompareChoice {
  std::string select;  // each run's round by this metric: shows its best, and test values there
  std::string paired;  // compares each row's values of this metric with those of the best row
};

// Groups runs with equal settings, whatever their seeds. A metric is a column of metrics.jsonl,
// "best_" and a metric of test rows, "rounds_to_" and an accuracy (0.5, 0.8, 0.9, 0.95, 0.99),
// "seconds" or "rounds_per_second". No metrics: those of test rows and the training loss. For an
// unknown metric the error lists what there is. `registry` knows the defaults of parameters.
absl::StatusOr<Comparison> Compare(const std::vector<RunResult>& runs,
                                   std::vector<std::string> metrics,
                                   const algorithms::Registry& registry,
                                   const CompareChoice& choice = {});

// For people: columns aligned, "0.9402 ± 0.0021", then the notes.
std::string TableText(const Comparison& comparison);

// For programs: one line per configuration, with the mean of each metric and, for several runs, its
// deviation.
std::string TableCsv(const Comparison& comparison);

}  // namespace macaw::cli
