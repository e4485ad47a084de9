#include "training/api/row_metrics.h"

#include <cmath>
#include <limits>

#include "training/api/class_counts.h"

namespace macaw::training {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
// Indices of SchemaFor; of regression the sums of labels follow.
enum : size_t { kRowsOf = 0, kLossOf = 1, kTargets = 3, kSquaredTargets = 4, kWithTargets = 5 };

// 1 − SSE/SST, with SST = Σy² − (Σy)²/n. Labels whose spread is lost in the rounding of their
// squares (a mean of more than 10⁵ standard deviations, or one value only) have no R².
double R2(std::span<const double> sums) {
  if (sums.size() != kWithTargets || sums[kRowsOf] == 0) return kUndefined;
  constexpr double kLeast = 1e-10;
  const double mean = sums[kTargets] / sums[kRowsOf];
  const double total = sums[kSquaredTargets] - mean * sums[kTargets];
  if (!(total > kLeast * sums[kSquaredTargets])) return kUndefined;
  return 1 - sums[kLossOf] / total;
}

double Perplexity(std::span<const double> sums) { return std::exp(sums[kLossOf] / sums[kRowsOf]); }

constexpr RowMetric kRowMetrics[] = {
    {"r2", "R², one less the squared errors ÷ the squared deviations of the labels from their mean",
     TaskKind::kRegression, &EvaluationMetrics::r2, /*higher_is_better=*/true, R2},
    {"perplexity", "e to the mean loss of a token", TaskKind::kNextToken,
     &EvaluationMetrics::perplexity, /*higher_is_better=*/false, Perplexity},
};

}  // namespace

std::span<const RowMetric> RowMetricList() { return kRowMetrics; }

std::vector<const RowMetric*> RowMetricsOf(const EvaluationMetrics& metrics, TaskKind task) {
  std::vector<const RowMetric*> asked;
  for (const RowMetric& metric : kRowMetrics) {
    if (metric.task == task && metrics.*metric.asked) asked.push_back(&metric);
  }
  return asked;
}

size_t LabelSums(const EvaluationMetrics& metrics, TaskKind task) {
  return metrics.r2 && task == TaskKind::kRegression ? kWithTargets - kTargets : 0;
}

void AddLabelSums(const RunPlan& run, const data::Rows& rows, uint64_t begin, uint64_t end,
                  MetricSums& sums) {
  if (LabelSums(run.evaluation.metrics, run.task) == 0) return;
  double sum = 0, squares = 0;
  for (uint64_t row = begin; row < end; ++row) {
    const double y = rows.block.targets[rows.at(row)];
    sum += y;
    squares += y * y;
  }
  sums.insert(sums.end(), {sum, squares});
}

std::vector<AskedMetric> AskedMetricsOf(TaskKind task) {
  std::vector<AskedMetric> metrics;
  for (const ClassMetric& metric : ClassMetricList()) {
    const bool binary = task == TaskKind::kBinary && metric.of_binary;
    if (binary || task == TaskKind::kClassification) metrics.push_back({metric.name, metric.asked});
  }
  for (const RowMetric& metric : kRowMetrics) {
    if (metric.task == task) metrics.push_back({metric.name, metric.asked});
  }
  return metrics;
}

}  // namespace macaw::training
