#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/around/registry.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "server/client_groups.h"
#include "server/columns.h"
#include "server/engine/evaluation_sums.h"
#include "server/engine/phase.h"
#include "server/statistics.h"
#include "training/api/class_counts.h"

namespace macaw::server {

// What confusion.json holds after an evaluation: the confusion matrix and the metrics of each
// class, by the columns' beginnings ("test"). Undefined values are null.
std::string ConfusionText(const EvaluationSums& sums, const training::ClassCounts& counts);

// Whether the run can be evaluated as [evaluation] says. The error names the key.
absl::Status CheckEvaluationOf(const RunPlan& run, const algorithms::Description& algorithm);

// One row of metrics.jsonl, built in two steps: the columns of training when the round closes, and
// those of evaluation when the evaluation is done. `headroom` and `rule` come from ModelKeeper.
// Nothing measured with a clock is in a row, so that equal runs have equal bytes; seconds are in
// events.jsonl. The columns are described in docs/guides/runs.md. One thread.
class MetricsRow {
 public:
  MetricsRow(TaskKind task, const PhaseReport& report,
             const std::vector<std::pair<std::string, double>>& headroom,
             const std::vector<std::pair<std::string, double>>& rule = {});
  static std::optional<MetricsRow> Parse(TaskKind task,
                                         const std::string& text);  // from a checkpoint

  // Adds λ/2‖w‖² of the model after the round. It is a term of the objective that AddEvaluation
  // reports.
  void AddPenalty(double lambda, ConstVectorView model);
  void AddEvaluation(const EvaluationSums& sums, const training::ClassCounts& counts = {},
                     const ConceptGroups& groups = {}, const EvaluationMetrics& asked = {},
                     std::span<const ClientGroups> divisions = {});
  std::string Text() const;  // one line of JSON
  std::optional<double> Get(const std::string& column) const;

 private:
  MetricsRow() = default;
  // AddTotal: columns over the rows of all clients together. AddClientStatistics: columns over the
  // clients, such as the mean and the quantiles. AddClassMetrics: of the metrics of classes, both.
  // AddRowMetrics: of the row metrics that are asked for, both.
  void AddTotal(const std::string& prefix, const std::vector<std::vector<double>>& sums);
  // Both, and how many clients they are over.
  void AddClients(const std::string& prefix, const std::vector<EvaluationSums::ClientSums>& clients,
                  uint64_t missing);
  // Of the rows with a backdoor's trigger, whose accuracy is its success.
  void AddBackdoor(const std::vector<double>& sums);
  // Over the rows of each group of concept shift.
  void AddGroups(const EvaluationSums& sums, const ConceptGroups& groups);
  void AddClientStatistics(const std::string& prefix, const std::vector<std::vector<double>>& sums);
  void AddClassMetrics(const EvaluationSums& sums, const training::ClassCounts& counts);
  void AddRowMetrics(const EvaluationSums& sums, const EvaluationMetrics& asked);
  void AddStatistics(const std::string& metric, std::vector<double> values, bool higher_is_better);
  TaskKind task_ = TaskKind::kClassification;
  std::vector<std::pair<std::string, double>> columns_;  // in the order written
};

}  // namespace macaw::server
