#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// What people want to know of a finished run, from its summary.json.
struct RunResult {
  std::string folder;
  uint64_t seed = 0;
  uint32_t rounds = 0;
  double seconds = 0, rounds_per_second = 0;
  std::string model_digest;
  std::map<std::string, double> final;  // by metric
};
absl::StatusOr<RunResult> ReadResult(const std::string& folder);

// A few lines: how long, how good, where, and how to open it in Python.
std::string ResultText(const RunResult& result);

// Mean and standard deviation (of a sample: n − 1) of each final metric, in a table.
struct Spread {
  std::string metric;
  double mean = 0, std = 0;
  std::vector<double> values;  // parallel to the runs
};
std::vector<Spread> SpreadOf(const std::vector<RunResult>& runs);
std::string SpreadText(const std::vector<Spread>& spreads);
// {"runs": [{"folder", "seed", "final": {…}}…], "metrics": {"test_accuracy": {"mean", "std",
// "values"}}}
std::string SpreadJson(const std::vector<RunResult>& runs, const std::vector<Spread>& spreads);

}  // namespace macaw::cli
