#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace macaw::server {

// What a run, a round or a configuration is chosen by. Whatever chooses (run.stop, `best` of a
// summary, sweeps) asks here, so all of them prefer validation rows to test rows.

// The rows over which a column of metrics.jsonl is computed.
enum class MetricRows : uint8_t { kTraining, kValidation, kTest };
MetricRows RowsOfMetric(absl::string_view column);
const char* Name(MetricRows rows);  // "training", "validation", "test"

// Whether a column is a metric over all test or all validation rows, as opposed to a statistic over
// clients or a number of clients.
bool OfUntrainedRows(absl::string_view column);

// Whether one client's word moves the column as far as the client likes: a mean of losses or errors
// to which clients add what they say. Accuracies and quantiles over clients move by a client's
// share alone.
bool IsMovedByOneClient(absl::string_view column);

// The column that chooses where none is named: an accuracy, else a loss, of validation rows where
// there are some, else of test rows, else of training rows. `has`: whether the run has the column.
// A rule with personal models is judged by them.
std::string UsualMetric(const std::function<bool(const std::string&)>& has);

// The accuracies of which a summary says when a run first reached them, as they are written there.
constexpr const char* kAccuracyMarks[] = {"0.5", "0.8", "0.9", "0.95", "0.99"};

}  // namespace macaw::server
