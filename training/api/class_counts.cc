#include "training/api/class_counts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace macaw::training {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kTop = 5;
constexpr ScoreCells::Group kGroups[] = {ScoreCells::Group::kLinear, ScoreCells::Group::kBeyond,
                                         ScoreCells::Group::kNear};

double MeanOfDefined(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    count += 1;
  }
  return count == 0 ? kNaN : sum / count;
}

double Ratio(double numerator, double denominator) {
  return denominator == 0 ? kNaN : numerator / denominator;
}

template <typename T>
bool AllFinite(const T* z, size_t count) {
  return std::all_of(z, z + count, [](T value) { return std::isfinite(value); });
}

constexpr double kLeastOthers = 1e-290;  // below, e^(z − top) loses digits or is 0

// log Σ e^(z − top) without the largest output, relative to the second largest.
template <typename T>
double LogOfOthers(std::span<const T> z, size_t best) {
  double second = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t c = 0; c < z.size(); ++c) {
    if (c != best) second = std::max(second, static_cast<double>(z[c]));
  }
  for (size_t c = 0; c < z.size(); ++c) {
    if (c != best) sum += std::exp(static_cast<double>(z[c]) - second);
  }
  return second - static_cast<double>(z[best]) + std::log(sum);
}

// Whether fewer than five classes have a larger output than the label, or an equal one before it.
template <typename T>
bool IsAmongTheTop(const T* z, size_t width, size_t label) {
  size_t before = 0;
  for (size_t c = 0; c < width; ++c)
    before += static_cast<size_t>(z[c] > z[label] || (z[c] == z[label] && c < label));
  return before < kTop;
}

// The entries of counts that belong to `size` indices from `first` on.
struct Range {
  size_t begin = 0, end = 0;
};

Range RangeOf(const SparseCounts& counts, size_t first, size_t size) {
  const auto place = [&](size_t index) {
    return static_cast<size_t>(std::ranges::lower_bound(counts.at, index) - counts.at.begin());
  };
  return {place(first), place(first + size)};
}

double SumOf(const SparseCounts& counts, size_t first, size_t size) {
  const Range range = RangeOf(counts, first, size);
  double sum = 0;
  for (size_t i = range.begin; i < range.end; ++i) sum += counts.count[i];
  return sum;
}

constexpr ClassMetric kClassMetrics[] = {
    {"balanced_accuracy", "the mean of the classes' recalls", &EvaluationMetrics::balanced_accuracy,
     [](const ClassCounts::PerClass& each, bool) { return MeanOfDefined(each.recall); }},
    {"f1", "F1 of class 1 in a binary task, else the mean of the classes' F1",
     &EvaluationMetrics::f1,
     [](const ClassCounts::PerClass& each, bool binary) {
       return binary ? each.f1[1] : MeanOfDefined(each.f1);
     }},
    {"auc", "AUC of class 1 in a binary task, else the mean of one class against all",
     &EvaluationMetrics::auc,
     [](const ClassCounts::PerClass& each, bool) { return MeanOfDefined(each.auc); }},
    {"top5", "the share of rows whose label is among the five largest outputs",
     &EvaluationMetrics::top5, [](const ClassCounts::PerClass& each, bool) { return each.top5; },
     /*higher_is_better=*/true, /*of_binary=*/false},
    {"ece", "the expected calibration error, of 15 bins of the confidence", &EvaluationMetrics::ece,
     [](const ClassCounts::PerClass& each, bool) { return each.ece; }, /*higher_is_better=*/false},
};

}  // namespace

std::span<const ClassMetric> ClassMetricList() { return kClassMetrics; }

SparseCounts SparseCounts::Of(std::span<const double> all) {
  SparseCounts counts;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    counts.at.push_back(static_cast<uint32_t>(i));
    counts.count.push_back(all[i]);
  }
  return counts;
}

ClassCounts ClassCounts::Of(const EvaluationMetrics& metrics, TaskKind task, int64_t outputs) {
  ClassCounts counts;
  const bool binary = task == TaskKind::kBinary;
  if (!metrics.OfClasses() || !(binary || task == TaskKind::kClassification)) return counts;
  counts.metrics_ = metrics;
  counts.metrics_.top5 &= !binary;
  counts.binary_ = binary;
  counts.matrix_ = metrics.balanced_accuracy || metrics.f1 || metrics.confusion;
  counts.classes_ = binary ? 2 : static_cast<size_t>(outputs);
  if (metrics.auc) {
    // All classes are equally probable to a model that has learnt nothing.
    const double centre = -std::log(static_cast<double>(counts.classes_ - 1));
    counts.cells_ = ScoreCells(2 * counts.curves(), centre);
  }
  return counts;
}

size_t ClassCounts::First(Group group, size_t histogram) const {
  const size_t before = histogram * cells_.size();
  switch (group) {
    case Group::kLinear:
      return Matrix() + before;
    case Group::kBeyond:
      return Beyond() + before;
    case Group::kNear:
      break;
  }
  return First(Group::kBeyond, 2 * curves()) + before;
}

// `others`: Σ e^(z − top) without the largest output, of classification.
template <typename T>
void ClassCounts::AddCurves(const T* z, size_t best, int64_t label, double others,
                            std::span<double> counts) const {
  const auto add = [&](size_t curve, bool positive, double log_odds) {
    const ScoreCells::Cell cell = cells_.Of(log_odds);
    counts[First(cell.group, HistogramOf(curve, positive)) + cell.number] += 1;
  };
  if (binary_) return add(0, label == 1, static_cast<double>(z[0]));
  const auto top = static_cast<double>(z[best]);
  const double log_partition = std::log1p(others);
  const double log_others =
      others > kLeastOthers ? std::log(others) : LogOfOthers(std::span(z, classes_), best);
  for (size_t c = 0; c < classes_; ++c) {
    // log(1 − p) without cancellation: p ≤ 1/2 but for the largest.
    const double log_p = static_cast<double>(z[c]) - top - log_partition;
    add(c, label == static_cast<int64_t>(c),
        c == best ? -log_others : log_p - std::log1p(-std::exp(log_p)));
  }
}

template <typename T>
void ClassCounts::Add(const T* outputs, size_t stride, std::span<const int64_t> labels,
                      std::span<double> counts) const {
  const size_t width = binary_ ? 1 : classes_;
  for (size_t row = 0; row < labels.size(); ++row) {
    const T* const z = outputs + row * stride;
    if (!AllFinite(z, width)) continue;
    const auto label = static_cast<size_t>(labels[row]);
    const auto best =
        binary_ ? size_t{z[0] > 0} : static_cast<size_t>(std::max_element(z, z + width) - z);
    if (matrix_) counts[label * classes_ + best] += 1;
    if (metrics_.top5) counts[Top() + (IsAmongTheTop(z, width, label) ? 0 : 1)] += 1;
    if (!metrics_.auc && !metrics_.ece) continue;
    double others = 0;  // Σ e^(z − top) without the largest; binary: of the outputs 0 and z
    if (binary_) others = std::exp(-std::abs(static_cast<double>(z[0])));
    for (size_t c = 0; c < width && !binary_; ++c) {
      if (c != best) others += std::exp(static_cast<double>(z[c]) - static_cast<double>(z[best]));
    }
    if (metrics_.ece)
      AddConfidence(1 / (1 + others), best == label,
                    counts.subspan(Calibration(), kCalibrationCounts));
    if (metrics_.auc) AddCurves(z, best, labels[row], others, counts);
  }
}

double ClassCounts::RowsOf(const SparseCounts& counts, size_t histogram) const {
  double rows = 0;
  for (const Group group : kGroups) rows += SumOf(counts, First(group, histogram), cells_.size());
  return rows;
}

double ClassCounts::Counted(const SparseCounts& counts) const {
  if (matrix_) return SumOf(counts, 0, Matrix());
  if (metrics_.auc)
    return RowsOf(counts, HistogramOf(0, false)) + RowsOf(counts, HistogramOf(0, true));
  return metrics_.top5 ? SumOf(counts, Top(), 2) : CalibratedRows(CalibrationOf(counts));
}

std::array<double, kCalibrationCounts> ClassCounts::CalibrationOf(
    const SparseCounts& counts) const {
  std::array<double, kCalibrationCounts> found = {};
  const Range range = RangeOf(counts, Calibration(), kCalibrationCounts);
  for (size_t i = range.begin; i < range.end; ++i)
    found[counts.at[i] - Calibration()] = counts.count[i];
  return found;
}

bool ClassCounts::Fit(const SparseCounts& counts, double rows) const {
  if (counts.at.size() != counts.count.size()) return false;
  for (size_t i = 0; i < counts.at.size(); ++i) {
    if (!(counts.count[i] > 0) || counts.at[i] >= size()) return false;
    if (i > 0 && counts.at[i] <= counts.at[i - 1]) return false;
  }
  const double counted = Counted(counts);
  double positives = 0;
  for (size_t curve = 0; curve < curves(); ++curve) {  // each has every row once
    const double of_class = RowsOf(counts, HistogramOf(curve, true));
    if (of_class + RowsOf(counts, HistogramOf(curve, false)) != counted) return false;
    positives += of_class;
    const size_t label = binary_ ? 1 : curve;
    if (matrix_ && of_class != SumOf(counts, label * classes_, classes_)) return false;
  }
  // A row is of one class.
  if (curves() > 1 && positives != counted) return false;
  if (metrics_.top5 && SumOf(counts, Top(), 2) != counted) return false;
  if (metrics_.ece) {
    const std::array<double, kCalibrationCounts> calibration = CalibrationOf(counts);
    if (CalibratedRows(calibration) != counted || !CalibrationFits(calibration)) return false;
  }
  return counted <= rows;
}

std::vector<std::string> ClassCounts::names() const {
  std::vector<std::string> names;
  if (!any()) return names;
  for (const ClassMetric& metric : kClassMetrics) {
    if (metrics_.*metric.asked && (metric.of_binary || !binary_)) names.emplace_back(metric.name);
  }
  return names;
}

std::vector<ClassCounts::Cell> ClassCounts::CellsOf(const SparseCounts& counts,
                                                    size_t histogram) const {
  std::vector<Cell> cells;
  for (const Group group : kGroups) {
    const size_t first = First(group, histogram);
    const Range range = RangeOf(counts, first, cells_.size());
    for (size_t i = range.begin; i < range.end; ++i)
      cells.push_back({cells_.PlaceOf({group, counts.at[i] - first}), counts.count[i]});
  }
  std::ranges::sort(cells, {}, &Cell::place);
  return cells;
}

SparseCounts ClassCounts::Folded(const SparseCounts& counts, std::span<const Group> groups) const {
  std::map<uint32_t, double> all;
  for (size_t i = 0; i < counts.at.size(); ++i) {
    size_t at = counts.at[i];
    for (const Group group : groups) {
      const size_t first = First(group, 0), size = cells_.size();
      if (at < first || at >= first + 2 * curves() * size) continue;
      const size_t histogram = (at - first) / size;
      const size_t cell = cells_.LinearOf({group, (at - first) % size});
      at = First(Group::kLinear, histogram) + cell;
      break;
    }
    all[static_cast<uint32_t>(at)] += counts.count[i];
  }
  SparseCounts folded;
  for (const auto& [at, count] : all) {
    folded.at.push_back(at);
    folded.count.push_back(count);
  }
  return folded;
}

SparseCounts ClassCounts::OfRelease010(const SparseCounts& counts) const {
  constexpr Group kLater[] = {Group::kBeyond, Group::kNear};
  return metrics_.auc ? Folded(counts, kLater) : counts;
}

bool ClassCounts::HasCovered(const SparseCounts& counts) const {
  const size_t first = First(Group::kLinear, 0), size = cells_.size();
  const Range range = RangeOf(counts, first, 2 * curves() * size);
  return std::any_of(counts.at.begin() + static_cast<std::ptrdiff_t>(range.begin),
                     counts.at.begin() + static_cast<std::ptrdiff_t>(range.end),
                     [&](uint32_t at) { return cells_.IsCovered((at - first) % size); });
}

double ClassCounts::Auc(const SparseCounts& counts, size_t curve) const {
  const std::vector<Cell> negative = CellsOf(counts, HistogramOf(curve, false));
  const std::vector<Cell> positive = CellsOf(counts, HistogramOf(curve, true));
  double positives = 0, negatives = 0, twice_below = 0;  // twice: a tie is half a pair
  auto n = negative.begin();
  for (const Cell& cell : positive) {
    for (; n != negative.end() && n->place < cell.place; ++n) negatives += n->count;
    const bool tie = n != negative.end() && n->place == cell.place;
    twice_below += cell.count * (2 * negatives + (tie ? n->count : 0));
    positives += cell.count;
  }
  for (; n != negative.end(); ++n) negatives += n->count;
  return Ratio(twice_below, 2 * positives * negatives);
}

ClassCounts::PerClass ClassCounts::Each(const SparseCounts& counts) const {
  PerClass each;
  if (matrix_) {
    std::vector<double> rows(classes_), predicted(classes_), correct(classes_);
    for (size_t i = 0; i < counts.at.size() && counts.at[i] < Matrix(); ++i) {
      const size_t label = counts.at[i] / classes_, prediction = counts.at[i] % classes_;
      rows[label] += counts.count[i];
      predicted[prediction] += counts.count[i];
      if (label == prediction) correct[label] = counts.count[i];
    }
    for (size_t label = 0; label < classes_; ++label) {
      each.recall.push_back(Ratio(correct[label], rows[label]));
      each.precision.push_back(Ratio(correct[label], predicted[label]));
      each.f1.push_back(Ratio(2 * correct[label], rows[label] + predicted[label]));
    }
  }
  if (metrics_.auc) {
    constexpr Group kNear[] = {Group::kNear};
    const bool coarse = HasCovered(counts);
    const SparseCounts folded = coarse ? Folded(counts, kNear) : SparseCounts();
    for (size_t curve = 0; curve < curves(); ++curve)
      each.auc.push_back(Auc(coarse ? folded : counts, curve));
  }
  if (metrics_.top5) each.top5 = Ratio(SumOf(counts, Top(), 1), SumOf(counts, Top(), 2));
  if (metrics_.ece) each.ece = CalibrationError(CalibrationOf(counts));
  return each;
}

std::vector<std::vector<double>> ClassCounts::Confusion(const SparseCounts& counts) const {
  std::vector<std::vector<double>> matrix;
  if (matrix_) matrix.assign(classes_, std::vector<double>(classes_));
  for (size_t i = 0; i < counts.at.size() && counts.at[i] < Matrix(); ++i)
    matrix[counts.at[i] / classes_][counts.at[i] % classes_] = counts.count[i];
  return matrix;
}

std::vector<double> ClassCounts::Values(const SparseCounts& counts, double rows) const {
  if (rows == 0 || Counted(counts) != rows) return std::vector<double>(names().size(), kNaN);
  const PerClass each = Each(counts);
  std::vector<double> values;
  for (const ClassMetric& metric : kClassMetrics) {
    if (metrics_.*metric.asked && (metric.of_binary || !binary_))
      values.push_back(metric.value(each, binary_));
  }
  return values;
}

template void ClassCounts::Add(const float*, size_t, std::span<const int64_t>,
                               std::span<double>) const;
template void ClassCounts::Add(const double*, size_t, std::span<const int64_t>,
                               std::span<double>) const;

}  // namespace macaw::training
