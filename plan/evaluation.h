#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/settings/section.h"

namespace macaw {

// Local steps before a client's test rows are evaluated, from the point that is evaluated without
// them. They change nothing but the columns clients_test_tuned_*.
struct FineTune {
  uint32_t steps = 0;  // 0: none
  double lr = 0;       // 0: local.lr, without its schedule
  friend bool operator==(const FineTune&, const FineTune&) = default;
};

// Metrics of evaluated rows beside those that every run of the task has. See
// training/api/class_counts.h (those of classes) and training/api/row_metrics.h.
struct EvaluationMetrics {
  bool balanced_accuracy = false;  // the mean of the classes' recalls
  bool f1 = false;          // binary: of class 1; classification: the mean of the classes' F1
  bool auc = false;         // binary: of class 1; classification: the mean of one class against all
  bool confusion = false;   // the whole matrix and the metrics of each class, in confusion.json
  bool top5 = false;        // classification: the label is among the five largest outputs
  bool ece = false;         // the expected calibration error of 15 bins
  bool r2 = false;          // regression: the coefficient of determination
  bool perplexity = false;  // next token: e to the mean loss of a token
  bool OfClasses() const { return balanced_accuracy || f1 || auc || confusion || top5 || ece; }
  // Counts by label and prediction, or by class: their number grows with that of the classes.
  bool ByClass() const { return balanced_accuracy || f1 || auc || confusion; }
  bool any() const { return OfClasses() || r2 || perplexity; }
  friend bool operator==(const EvaluationMetrics&, const EvaluationMetrics&) = default;
};

struct EvaluationConfig {
  uint32_t every = 1;  // rounds; 0: only after the last one. The last round is always evaluated.
  // Rows per task. It affects the result's bits, so it never depends on the workers.
  uint32_t chunk = 1000;
  bool central = true;  // the central test set
  // The central validation set, where the data has one (no key: data.central_val_fraction asks for
  // it). False: the rule has no common model.
  bool central_validation = true;
  // Every client's own test rows, at the point that the rule names for the client. Where that is a
  // model of the client's own, the global model on the same rows, too.
  bool clients = false;
  // Which rows: the key `splits`. Without `test`, neither of the two above.
  bool test = true;
  bool validation = false;  // every client's validation rows, at the client's point
  // Instead of every client so many, drawn anew from the run's seed after each round: of `clients`
  // and `validation`, and as many of `heldout` (`train` needs everybody). 0: every client.
  uint64_t sample = 0;
  FineTune fine_tune;  // needs `clients` or `heldout`
  bool train = false;  // every client's training rows, and the objective over all of them
  EvaluationMetrics metrics;
  // Groups of clients that have columns of their own: "NAME=PATTERN" (plan/named_groups.h).
  std::vector<std::string> groups;
  // Columns of how far the clients' updates are from the model and from each other
  // (algorithms/around/drift.h).
  bool updates = false;
  // Clients without training rows apart from the others: they stand for clients that join later.
  // Before: the global model on their test rows. After: fine_tune on their validation rows.
  bool heldout = false;
  // Every so many rounds the model is evaluated without each client of the round, too
  // (server/leave_one_out.h); 0: never.
  uint32_t leave_one_out = 0;
  // Clients, by number, for each of which the model without all that it has sent is kept beside the
  // run's, and evaluated with it (server/unlearning.h).
  std::vector<uint64_t> unlearn;
  friend bool operator==(const EvaluationConfig&, const EvaluationConfig&) = default;
};

// Whether each client of this round is left out once.
inline bool LeaveOneOutDue(const EvaluationConfig& evaluation, Round round) {
  return evaluation.leave_one_out > 0 && round.value % evaluation.leave_one_out == 0;
}

// Whether workers send the client as a part of its own in this round.
inline bool SentApart(const EvaluationConfig& evaluation, Round round, ClientId client) {
  return LeaveOneOutDue(evaluation, round) ||
         std::ranges::find(evaluation.unlearn, client.value) != evaluation.unlearn.end();
}

// Whether the run has contributions.jsonl, and whether a round has a line there if it is evaluated.
inline bool HasContributions(const EvaluationConfig& evaluation) {
  return evaluation.leave_one_out > 0 || !evaluation.unlearn.empty();
}
inline bool HasContributions(const EvaluationConfig& evaluation, Round round) {
  return LeaveOneOutDue(evaluation, round) || !evaluation.unlearn.empty();
}

// The keys of [evaluation].
settings::Section<EvaluationConfig> EvaluationSection();

}  // namespace macaw
