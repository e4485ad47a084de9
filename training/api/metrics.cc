#include "training/api/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace macaw::training {

const MetricSchema& SchemaFor(TaskKind task) {
  // Created once, because each client's turn asks several times.
  static const MetricSchema classification = {
      .sums = {"examples", "loss", "correct"},
      .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}},
      .counts = {0, 2}};
  static const MetricSchema binary = {
      .sums = {"examples", "loss", "correct", "true_positives", "predicted_positives", "positives"},
      .ratios = {{"loss", 1, 0, false},
                 {"accuracy", 2, 0, true},
                 {"precision", 3, 4, true},
                 {"recall", 3, 5, true}},
      .counts = {0, 2, 3, 4, 5}};
  static const MetricSchema regression = {.sums = {"examples", "loss", "absolute_error"},
                                          .ratios = {{"loss", 1, 0, false}, {"mae", 2, 0, false}},
                                          .counts = {0}};
  static const MetricSchema next_token = {
      .sums = {"tokens", "loss", "correct"},
      .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}},
      .counts = {0, 2}};
  static const MetricSchema reconstruction = {
      .sums = {"examples", "loss"}, .ratios = {{"loss", 1, 0, false}}, .counts = {0}};
  switch (task) {
    case TaskKind::kClassification:
    case TaskKind::kAuto:  // a plan is resolved before anybody asks
      break;
    case TaskKind::kBinary:
      return binary;
    case TaskKind::kRegression:
      return regression;
    case TaskKind::kNextToken:
      return next_token;
    case TaskKind::kReconstruction:
      return reconstruction;
  }
  return classification;
}

void MakeInfiniteBeyondLimit(std::span<double> sums) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double& sum : sums) {
    if (std::abs(sum) > kLargestSum) sum = std::copysign(kInfinity, sum);
  }
}

bool CountsFit(const MetricSchema& schema, std::span<const double> sums) {
  return sums.size() == schema.sums.size() && std::isfinite(sums[0]) &&
         std::ranges::all_of(schema.counts, [&](size_t index) {
           return sums[index] >= 0 && sums[index] <= sums[0];
         });
}

}  // namespace macaw::training
