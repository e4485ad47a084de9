#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/plan.h"
#include "cli/sweep/sweep_file.h"

namespace macaw::cli {

// Sets metric, higher and report of the plan, as the file says. Where it does not, validation rows
// decide where there are some, and then the metric of test rows is shown beside. `runs`: one of
// each rule; the metric is one that all of them have. A metric of the common model that the file
// names, and that some rule lacks because it has no common model, gives way to the same metric of
// the clients' rows (MetricNote). Returns an error if only a metric of training rows is common to
// rules that have others, such as to "fedavg" and "local".
absl::Status ChooseMetrics(const SweepSettings& settings, const std::vector<CheckedRun>& runs,
                           SweepPlan& plan);

// Says that the plan's metric is another than the file's, and why; "": it is not.
std::string MetricNote(const SweepSettings& settings, const SweepPlan& plan);

// Says that the common model's rows decide where nothing is named, and that some rule has personal
// models, too; "": not so.
std::string CommonModelNote(const SweepSettings& settings, const std::vector<CheckedRun>& runs,
                            const SweepPlan& plan);

// Returns an error unless the run will have the plan's metric.
absl::Status CheckMetricOf(const CheckedRun& run, const SweepPlan& plan);

// The columns that the file wants reported: each must be in the runs of some configuration. One
// thread.
class ReportedColumns {
 public:
  explicit ReportedColumns(const SweepSettings& settings);
  // Looks for them in the run of a configuration. `explain` says in an error which one it is.
  using Explain = absl::FunctionRef<absl::Status(absl::Status)>;
  void Look(const CheckedRun& run, const Explain& explain);
  bool complete() const { return missing_.empty(); }
  // An error names a column that no run has had so far, and says why one of them has not.
  absl::Status Check() const;

 private:
  std::map<std::string, absl::Status> missing_;  // by name
  size_t runs_ = 0;                              // looked at
};

}  // namespace macaw::cli
