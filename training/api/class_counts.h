#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "plan/evaluation.h"
#include "plan/run_plan.h"
#include "plan/task.h"
#include "training/api/calibration.h"
#include "training/api/score_cells.h"

namespace macaw::training {

// The most classes of a run with metrics of classes: a confusion matrix has classes² counts, and a
// client's must fit a message.
inline constexpr int64_t kMostClasses = 700;

// The counts that are not 0: most are, since a row raises a few. `at` ascends.
struct SparseCounts {
  std::vector<uint32_t> at;
  std::vector<double> count;  // parallel to `at`; whole numbers above 0
  static SparseCounts Of(std::span<const double> all);
};

// What is counted for the metrics of classes, and how they follow from the counts. The counts are
// of rows, so their sums are exact and no order of additions matters:
//
// - the confusion matrix: rows by label and predicted class (the first of the largest outputs;
//   binary: 1 if the output is above 0);
// - for the AUC, of each class (binary: of class 1), a histogram of the score of the rows that have
//   this label, and one of the others. The score is the log-odds of the class, log(p / (1 − p)),
//   p the softmax (binary: the sigmoid), in cells of score_cells.h. Two rows in one cell count as a
//   tie, that is half. So the AUC is exact for the rounded scores, and differs from that of the
//   scores themselves by at most half the share of the pairs of a positive and a negative row that
//   are in one cell.
// - for top5, the rows whose label is among the five largest outputs, and the others. Of equal
//   outputs the first one is the larger, as for the prediction;
// - for ece, the counts of calibration.h.
//
// Release 0.1.0 has the linear cells alone. The other cells are behind all other counts, so its
// counts are read as they are.
//
// A row with an output that is not finite is not counted, and then the metrics are undefined, since
// they would be those of other rows. Immutable, thread-safe.
class ClassCounts {
 public:
  ClassCounts() = default;  // nothing is counted
  // Nothing, too, for tasks other than binary and classification.
  static ClassCounts Of(const EvaluationMetrics& metrics, TaskKind task, int64_t outputs);

  bool any() const { return classes_ > 0; }
  size_t classes() const { return classes_; }
  size_t curves() const { return !metrics_.auc || !any() ? 0 : binary_ ? 1 : classes_; }
  // The number of counts.
  size_t size() const { return First(ScoreCells::Group::kNear, 2 * curves()); }
  // How many of the counts a row changes at most.
  size_t per_row() const {
    return (matrix_ ? 1 : 0) + curves() + (metrics_.top5 ? 1 : 0) + (metrics_.ece ? 5 : 0);
  }
  bool whole_matrix() const { return metrics_.confusion; }

  // Adds rows to `counts`, `size()` numbers. The outputs of a row follow each other, rows are
  // `stride` apart.
  template <typename T>
  void Add(const T* outputs, size_t stride, std::span<const int64_t> labels,
           std::span<double> counts) const;

  // The same rows as release 0.1.0 counts them.
  SparseCounts OfRelease010(const SparseCounts& counts) const;

  // Whether so many rows can give these counts.
  bool Fit(const SparseCounts& counts, double rows) const;

  // The names of the metrics that are asked for, in the order of ClassMetricList, and their values;
  // NaN: undefined.
  std::vector<std::string> names() const;
  std::vector<double> Values(const SparseCounts& counts, double rows) const;

  // The metrics of each class; empty where they are not counted, NaN where they are undefined. And
  // two that are of all classes together.
  struct PerClass {
    std::vector<double> recall, precision, f1;
    std::vector<double> auc;  // of each curve
    double top5 = std::numeric_limits<double>::quiet_NaN();
    double ece = std::numeric_limits<double>::quiet_NaN();
  };
  PerClass Each(const SparseCounts& counts) const;
  // Rows by label, then by prediction; empty: not counted.
  std::vector<std::vector<double>> Confusion(const SparseCounts& counts) const;

 private:
  using Group = ScoreCells::Group;
  // Each curve has two histograms, one behind the other.
  static size_t HistogramOf(size_t curve, bool positive) { return 2 * curve + (positive ? 1 : 0); }
  size_t Matrix() const { return matrix_ ? classes_ * classes_ : 0; }
  // The first index of a histogram's cells of a group.
  size_t First(Group group, size_t histogram) const;
  size_t Top() const { return First(Group::kLinear, 2 * curves()); }  // of the five, not of them
  size_t Calibration() const { return Top() + (metrics_.top5 ? 2 : 0); }  // first index
  size_t Beyond() const { return Calibration() + (metrics_.ece ? kCalibrationCounts : 0); }
  // The rows of a histogram.
  double RowsOf(const SparseCounts& counts, size_t histogram) const;
  // Moves the counts of the cells of a group to linear ones.
  SparseCounts Folded(const SparseCounts& counts, std::span<const Group> groups) const;
  // Whether a worker of 0.1.0 has counted scores that others count in near cells.
  bool HasCovered(const SparseCounts& counts) const;
  // Cells in their order, and their counts.
  struct Cell {
    size_t place;
    double count;
  };
  std::vector<Cell> CellsOf(const SparseCounts& counts, size_t histogram) const;
  double Counted(const SparseCounts& counts) const;  // rows
  // Those of calibration.h; only where they are counted.
  std::array<double, kCalibrationCounts> CalibrationOf(const SparseCounts& counts) const;
  template <typename T>
  void AddCurves(const T* z, size_t best, int64_t label, double others,
                 std::span<double> counts) const;
  // The AUC of a curve; NaN without positives or negatives.
  double Auc(const SparseCounts& counts, size_t curve) const;

  EvaluationMetrics metrics_;
  bool binary_ = false;
  bool matrix_ = false;
  size_t classes_ = 0;
  ScoreCells cells_;  // of the AUC, if it is asked for
};

// A metric of classes: a column.
struct ClassMetric {
  const char* name;  // of the column, and in evaluation.metrics
  const char* help;
  bool EvaluationMetrics::*asked;
  double (*value)(const ClassCounts::PerClass& each, bool binary);
  bool higher_is_better = true;
  bool of_binary = true;  // whether a binary task has it
};
std::span<const ClassMetric> ClassMetricList();

// Those of a resolved plan.
inline ClassCounts ClassCountsOf(const RunPlan& run) {
  return ClassCounts::Of(run.evaluation.metrics, run.task, run.model.classes);
}

}  // namespace macaw::training
