#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/diff/trace.h"

namespace macaw::cli {

// A figure of a bundle that the run made again does not have.
struct FigureDifference {
  std::string file, key;     // "summary.json", "final.test_accuracy"
  std::string stated, made;  // as JSON; "nothing": that side has no such figure
};

// What a bundle says of its run. The members must outlive the call.
struct StatedRun {
  const std::map<std::string, std::string>& files;  // of the bundle, by name
  const std::map<uint32_t, MetricsRow>& rows;       // of its metrics.jsonl
  uint32_t rounds = 0;
  std::string model_digest;  // as bundle.json says
  // False: something from outside ended the run. It has not evaluated its last model then, and may
  // lack its last row.
  bool ended_by_itself = true;
};

struct FigureReport {
  std::optional<FigureDifference> difference;  // the first
  std::vector<std::string> not_compared;       // what the bundle has beside it; phrases
};

struct FigureOptions {
  double tolerance = 0;  // 0: exactly; above it, numbers agree as Agree (cli/diff) says
  // Under a tolerance: the models have the same bits, so digests are compared, too, and the rounds
  // in which a value was best or reached.
  bool same_model = false;
};

// Compares what the bundle states in summary.json, confusion.json, clients_evaluated.json,
// contributions.jsonl and clients.jsonl with the folder of the run made again, whose rows are
// `made_rows`. Figures that the bundle lacks are no difference: an earlier release had fewer. An
// error: a file is no JSON.
absl::StatusOr<FigureReport> CompareFigures(const StatedRun& stated, const std::string& again,
                                            const std::map<uint32_t, MetricsRow>& made_rows,
                                            const FigureOptions& options);

}  // namespace macaw::cli
