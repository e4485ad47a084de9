#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/run_config.h"
#include "training/api/metrics.h"

namespace macaw::training {

// The class of a position that is padding: it has no loss, no gradient, and does not count.
constexpr int64_t kNoLabel = -1;

// The labels of a batch: a class a row, or a number a row (the one the task has; the other is
// empty). A row of a next-token task is one position of a sequence.
template <typename T>
struct Labels {
  std::span<const int64_t> classes;
  std::span<const T> targets;
};

// What a mean over rows is: each row's loss times its class weight, divided by `divisor`, the sum
// of the weights of the rows meant (a batch, or all of a client's). `rows` is their number.
struct Mean {
  double divisor = 1;
  double rows = 1;
};

// The loss of a task and the metrics beside it, computed from a model's outputs in double, row by
// row in order, with the loss's gradient by the outputs: what every trainer shares, so that back
// ends differ in the network only. Losses and their weighting are PyTorch's: cross_entropy (class
// weights, label smoothing), binary cross-entropy with logits (weights and smoothing of the two
// classes alike), mse_loss. Torch-free. Immutable, thread-safe.
class Objective {
 public:
  // `outputs`: of the model. Refuses weights and smoothing that do not fit the task, naming the
  // key.
  static absl::StatusOr<Objective> Make(TaskKind task, int64_t outputs, const LocalConfig& local);
  // The same task without weights and smoothing: what evaluation reports.
  Objective Plain() const;

  size_t metrics() const { return metrics_; }  // length of MetricSums
  // Errors name the first row whose label the model has no output for.
  absl::Status CheckClasses(std::span<const int64_t> classes) const;
  // Whether rows weigh differently, so that a mean needs its labels' weights summed.
  bool weighted() const { return !weights_.empty(); }
  double WeightOf(int64_t label) const { return weights_.empty() ? 1.0 : weights_[label]; }
  // The mean over the batch itself.
  template <typename T>
  Mean MeanOf(const Labels<T>& labels) const;

  // Adds the rows' sums (the loss counted `mean.rows` times its mean, so that sums of batches are
  // sums of rows) to `sums`, and, where `gradient` is not empty, writes d(mean loss)/d(outputs)
  // there. `outputs` is [rows, outputs].
  template <typename T>
  void Rate(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
            std::span<T> gradient, std::span<double> sums) const;

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

  TaskKind task_ = TaskKind::kClassification;
  size_t outputs_ = 0;
  size_t metrics_ = 0;
  std::vector<double> weights_;  // per class; empty: 1
  double smoothing_ = 0;
};

}  // namespace macaw::training
