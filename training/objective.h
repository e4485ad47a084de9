#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/local.h"
#include "plan/task.h"
#include "training/api/class_counts.h"
#include "training/api/metrics.h"

namespace macaw::training {

// The label of padding: such a position has no loss and no gradient, and does not count.
constexpr int64_t kNoLabel = -1;

// The labels of a batch: a class per row, or a number per row. One of them is set, as the task
// needs; the other is empty. In a next-token task, a row is one position of a sequence. In a
// reconstruction, the targets are the rows' features, as many a row as there are outputs.
template <typename T>
struct Labels {
  std::span<const int64_t> classes;
  std::span<const T> targets;
};

// How a mean over rows is formed: each row's loss times its class weight, divided by `divisor`, the
// sum of the weights of all rows in the mean (a batch, or all of a client's rows). `rows` is the
// number of those rows.
struct Mean {
  double divisor = 1;
  double rows = 1;
};

// A task's loss and metrics, computed from a model's outputs in double, row by row in order, and
// the loss's gradient with respect to the outputs. All trainers share it, so back ends differ only
// in the network. Losses and weighting are PyTorch's: cross_entropy (class weights, label
// smoothing), binary cross-entropy with logits (weights and smoothing in the same way), mse_loss.
// No LibTorch. Immutable, thread-safe.
class Objective {
 public:
  // `outputs` is the model's. Weights or smoothing that do not fit the task are an error that names
  // the key.
  static absl::StatusOr<Objective> Make(TaskKind task, int64_t outputs, const LocalConfig& local);
  // The same task without weights and smoothing, for evaluation. The counts follow the sums.
  Objective Plain(const ClassCounts& counts = {}) const;

  // Of classes: the same task where an output counts as 0 unless its class is one of these.
  Objective Among(std::vector<bool> classes) const;

  TaskKind task() const { return task_; }
  double smoothing() const { return smoothing_; }
  std::span<const double> class_weights() const { return weights_; }  // empty: 1
  size_t metrics() const { return metrics_ + counts_.size(); }        // the length of the sums
  // By class: whether its output counts; empty: all do.
  const std::vector<bool>& among() const { return among_; }
  // Writes 0 for the outputs that do not count, in rows of outputs or of their gradient. Rate does
  // not: its caller passes both.
  template <typename T>
  void ClearAbsent(std::span<T> rows) const;
  // Errors name the first row whose label is out of range.
  absl::Status CheckClasses(std::span<const int64_t> classes) const;
  // Whether rows have different weights, so that a mean must sum the weights of its labels.
  bool weighted() const { return !weights_.empty(); }
  double WeightOf(int64_t label) const { return weights_.empty() ? 1.0 : weights_[label]; }
  // The mean over the batch.
  template <typename T>
  Mean MeanOf(const Labels<T>& labels) const;

  // Adds the rows' sums to `sums`. The loss is added as `mean.rows` times its mean, so that sums
  // over batches equal sums over rows. If `gradient` is not empty, writes d(mean loss)/d(outputs)
  // there. `outputs` is [rows, outputs].
  template <typename T>
  void Rate(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
            std::span<T> gradient, std::span<double> sums) const;
  // The part of it that adds the counts, for whoever computes the task's sums in another way. Rows
  // are `stride` outputs apart.
  template <typename T>
  void Count(const T* outputs, size_t stride, std::span<const int64_t> classes,
             std::span<double> sums) const {
    if (counts_.any()) counts_.Add(outputs, stride, classes, sums.subspan(metrics_));
  }

 private:
  template <typename T>
  void RateClasses(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                   std::span<T> gradient, std::span<double> sums) const;
  template <typename T>
  void RateBinary(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                  std::span<T> gradient, std::span<double> sums) const;
  template <typename T>
  void RateRegression(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                      std::span<T> gradient, std::span<double> sums) const;
  template <typename T>
  void RateReconstruction(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                          std::span<T> gradient, std::span<double> sums) const;

  TaskKind task_ = TaskKind::kClassification;
  size_t outputs_ = 0;
  size_t metrics_ = 0;  // sums of the task
  ClassCounts counts_;
  std::vector<double> weights_;  // per class; empty: 1
  double smoothing_ = 0;
  std::vector<bool> among_;
};

}  // namespace macaw::training
