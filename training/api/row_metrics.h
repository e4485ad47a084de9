#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "plan/evaluation.h"
#include "plan/run_plan.h"
#include "plan/task.h"
#include "training/api/metrics.h"

namespace macaw::training {

// A metric that evaluation.metrics asks for and that follows from additive sums of rows, but is no
// quotient of two of them.
struct RowMetric {
  const char* name;  // of the column, and in evaluation.metrics
  const char* help;
  TaskKind task;  // that has it
  bool EvaluationMetrics::*asked;
  bool higher_is_better;
  // Of the sums of MetricSchema, behind which are those of AddLabelSums. NaN: undefined.
  double (*value)(std::span<const double> sums);
};
std::span<const RowMetric> RowMetricList();

// The row metrics that are asked for, in the order of RowMetricList.
std::vector<const RowMetric*> RowMetricsOf(const EvaluationMetrics& metrics, TaskKind task);

// What an evaluation's sums have behind those of MetricSchema: for r2, Σy and Σy² of the labels y.
// They are of the rows alone, so no trainer has to know of them.
size_t LabelSums(const EvaluationMetrics& metrics, TaskKind task);  // how many
inline size_t EvaluationSumsOf(const RunPlan& run) {
  return SchemaFor(run.task).sums.size() + LabelSums(run.evaluation.metrics, run.task);
}
// Appends them for rows [begin, end), in the order of the rows.
void AddLabelSums(const RunPlan& run, const data::Rows& rows, uint64_t begin, uint64_t end,
                  MetricSums& sums);

// All that evaluation.metrics can name for a task, those of classes among them.
struct AskedMetric {
  const char* name;
  bool EvaluationMetrics::*asked;
};
std::vector<AskedMetric> AskedMetricsOf(TaskKind task);

}  // namespace macaw::training
