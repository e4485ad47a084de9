#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/registry.h"
#include "cli/simulate/result.h"

namespace macaw::cli {

// Runs side by side: a row per configuration, over its seeds.
struct Comparison {
  struct Row {
    std::vector<std::string> settings;          // parallel to `keys`
    std::vector<RunResult> runs;                // by seed; each seed once
    std::vector<std::optional<Spread>> values;  // parallel to `metrics`; none where a run lacks it
  };
  std::vector<std::string> keys;     // what differs: "algorithm.name", "local.lr", …
  std::vector<std::string> equal;    // what all have alike: "local.lr 0.05"
  std::vector<std::string> metrics;  // columns of metrics.jsonl (their last value), and others
  std::vector<Row> rows;             // in the order in which their first runs were given
  std::vector<std::string> notes;    // what a reader of the table has to know; whole sentences
};

// The runs of the folders; a file NAME-repeat.json stands for the runs that it names. Errors name
// the folder and what is missing in it.
absl::StatusOr<std::vector<RunResult>> ReadRuns(const std::vector<std::string>& paths);

// Runs with equal settings are one configuration, whatever their seeds. A metric is a column of
// metrics.jsonl, "best_" and a metric of test rows, "rounds_to_" and an accuracy (0.5, 0.8, 0.9,
// 0.95, 0.99), "seconds" or "rounds_per_second"; no metrics: those of test rows and the training
// loss. An unknown one is an error that lists what there is. `registry` knows the defaults of
// parameters.
absl::StatusOr<Comparison> Compare(const std::vector<RunResult>& runs,
                                   std::vector<std::string> metrics,
                                   const algorithms::Registry& registry);

// For people: columns aligned, "0.9402 ± 0.0021", then the notes.
std::string TableText(const Comparison& comparison);

// For programs: a line per configuration; of each metric its mean and, of several runs, deviation.
std::string TableCsv(const Comparison& comparison);

}  // namespace macaw::cli
