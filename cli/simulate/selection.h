#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/config/config.h"
#include "cli/config/reader.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "server/metrics.h"

namespace macaw::cli {

// What the data has that can be evaluated.
struct EvaluableRows {
  bool central_test = false, central_val = false;
  bool client_test = false, client_val = false;
};
EvaluableRows EvaluableRowsOf(const data::Dataset& dataset);

// All columns that the run can have.
absl::StatusOr<std::vector<server::MetricColumn>> ColumnsOf(const Config& config,
                                                            const models::ModelSpec& spec,
                                                            const algorithms::Registry& registry);

// Returns an error unless the run will have values in the column `metric`. `key`: what names it.
absl::Status CheckHas(const std::string& key, const std::string& metric, const RunPlan& run,
                      const std::vector<server::MetricColumn>& columns, const EvaluableRows& rows);

// The column that chooses where none is named (server/selection.h).
std::string UsualMetricOf(const RunPlan& run, const std::vector<server::MetricColumn>& columns,
                          const EvaluableRows& rows);

// Fills in run.stop.metric where only its limits are given. An error if it will have no value.
absl::Status ChooseStopMetric(Config& config, const models::ModelSpec& spec,
                              const data::Dataset& dataset, const algorithms::Registry& registry);

// For people, of how this run's end is chosen: that test rows choose it, or that a privacy budget
// ends it before its last round.
std::vector<std::string> NotesOnTheEnd(const Config& config);

// Which seeds and weights stay the same when run.seed differs; for a deviation over seeds that does
// not cover them. A sentence; "": none.
absl::StatusOr<std::string> FixedOverSeeds(const Document& document,
                                           std::vector<Override> overrides,
                                           const std::vector<uint64_t>& seeds,
                                           const sdk::Catalogue& catalogue,
                                           Idle idle = Idle::kRefuse);

}  // namespace macaw::cli
