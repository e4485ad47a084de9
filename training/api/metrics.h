#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/task.h"

namespace macaw::training {

// A metric is a quotient of two additive sums. Rows give sums, sums are added in a fixed order (by
// client or chunk), and only the reader of metrics.jsonl divides, so metrics are exact. sums[0] is
// the number of examples (for sequences: tokens in use), sums[1] the sum of their losses.
struct MetricRatio {
  std::string name;      // "loss", "accuracy"
  size_t numerator = 0;  // indices into the sums
  size_t denominator = 0;
  bool higher_is_better = true;
};

struct MetricSchema {
  std::vector<std::string> sums;    // names: "examples", "loss", "correct", ...
  std::vector<MetricRatio> ratios;  // the reported metrics
  std::vector<size_t> counts;       // indices of sums that count examples
};

// Classification: loss, accuracy. Binary (one logit, label 0/1): loss, accuracy, precision, recall.
// Regression: loss (the mean squared error, without the factor 1/2), mae. Next token: loss and
// accuracy per token. Reconstruction: loss (a row's is the mean squared error of its features).
const MetricSchema& SchemaFor(TaskKind task);

using MetricSums = std::vector<double>;  // parallel to MetricSchema::sums

// The largest sum, without its sign, with which a client counts. The squared errors of a model that
// diverges grow beyond it long before its weights overflow: floats reach 3e38, their squares 1e77,
// and sums are added in double precision. Up to the limit, whatever is made of sums stays finite:
// sums over clients and chunks of rows, and the squares behind a standard deviation.
constexpr double kLargestSum = 1e50;
// Whether a sum is finite and within the limit.
inline bool IsWithinLimit(double sum) { return std::abs(sum) <= kLargestSum; }  // false for NaN
// Makes sums beyond the limit infinite, with their sign: those of an evaluation, which tells of a
// model that has diverged by a loss that is not finite.
void MakeInfiniteBeyondLimit(std::span<double> sums);

// Whether there are as many sums as in the schema, and each count is between 0 and the number of
// examples.
bool CountsFit(const MetricSchema& schema, std::span<const double> sums);

inline void AddTo(MetricSums& total, std::span<const double> more) {
  if (total.size() < more.size()) total.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) total[i] += more[i];
}

}  // namespace macaw::training
