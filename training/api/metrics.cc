#include "training/api/metrics.h"

namespace macaw::training {

const MetricSchema& SchemaFor(TaskKind task) {
  // Made once: a client's turn asks several times.
  static const MetricSchema classification = {
      .sums = {"examples", "loss", "correct"},
      .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}}};
  static const MetricSchema binary = {
      .sums = {"examples", "loss", "correct", "true_positives", "predicted_positives", "positives"},
      .ratios = {{"loss", 1, 0, false},
                 {"accuracy", 2, 0, true},
                 {"precision", 3, 4, true},
                 {"recall", 3, 5, true}}};
  static const MetricSchema regression = {.sums = {"examples", "loss", "absolute_error"},
                                          .ratios = {{"loss", 1, 0, false}, {"mae", 2, 0, false}}};
  static const MetricSchema next_token = {
      .sums = {"tokens", "loss", "correct"},
      .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}}};
  switch (task) {
    case TaskKind::kClassification:
      break;
    case TaskKind::kBinary:
      return binary;
    case TaskKind::kRegression:
      return regression;
    case TaskKind::kNextToken:
      return next_token;
  }
  return classification;
}

}  // namespace macaw::training
