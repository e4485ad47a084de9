#pragma once

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

// Whether there are as many sums as in the schema, and each count is between 0 and the number of
// examples.
bool CountsFit(const MetricSchema& schema, std::span<const double> sums);

inline void AddTo(MetricSums& total, std::span<const double> more) {
  if (total.size() < more.size()) total.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) total[i] += more[i];
}

}  // namespace macaw::training
