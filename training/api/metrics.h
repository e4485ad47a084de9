#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/run_config.h"

namespace macaw::training {

// A metric is a quotient of two additive sums, so that it travels exactly: rows give sums, sums are
// added in a fixed order (client or chunk), and only the reader of metrics.jsonl sees the quotient.
// sums[0] is always the number of examples (tokens in use, for sequences), sums[1] the sum of their
// losses.
struct MetricRatio {
  std::string name;      // "loss", "accuracy"
  size_t numerator = 0;  // indices into the sums
  size_t denominator = 0;
  bool higher_is_better = true;
};

struct MetricSchema {
  std::vector<std::string> sums;    // "examples", "loss", "correct", ...
  std::vector<MetricRatio> ratios;  // what is reported
  std::vector<size_t> counts;       // indices of the sums that count some of the examples
};

// Classification: loss, accuracy. Binary (one logit, label 0/1): loss, accuracy, precision, recall.
// Regression: loss (squared error / 2 is not used: it is the plain mean squared error), mae.
// Next token: loss and accuracy of a token.
const MetricSchema& SchemaFor(TaskKind task);

using MetricSums = std::vector<double>;  // parallel to MetricSchema::sums

// As many sums as the schema has, and each count between 0 and the number of examples.
bool CountsFit(const MetricSchema& schema, std::span<const double> sums);

inline void AddTo(MetricSums& total, std::span<const double> more) {
  if (total.size() < more.size()) total.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) total[i] += more[i];
}

}  // namespace macaw::training
