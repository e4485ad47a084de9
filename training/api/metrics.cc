#include "training/api/metrics.h"

namespace macaw::training {

MetricSchema SchemaFor(TaskKind task) {
  switch (task) {
    case TaskKind::kClassification:
      return {.sums = {"examples", "loss", "correct"},
              .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}}};
    case TaskKind::kBinary:
      return {.sums = {"examples", "loss", "correct", "true_positives", "predicted_positives",
                       "positives"},
              .ratios = {{"loss", 1, 0, false},
                         {"accuracy", 2, 0, true},
                         {"precision", 3, 4, true},
                         {"recall", 3, 5, true}}};
    case TaskKind::kRegression:
      return {.sums = {"examples", "loss", "absolute_error"},
              .ratios = {{"loss", 1, 0, false}, {"mae", 2, 0, false}}};
    case TaskKind::kNextToken:
      return {.sums = {"tokens", "loss", "correct"},
              .ratios = {{"loss", 1, 0, false}, {"accuracy", 2, 0, true}}};
  }
  return {};
}

}  // namespace macaw::training
