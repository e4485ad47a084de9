#include "training/objective.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::training {
namespace {

// Indices into MetricSums, in the order of SchemaFor.
enum : size_t { kExamples = 0, kLoss = 1, kCorrect = 2, kAbsoluteError = 2 };
enum : size_t { kTruePositives = 3, kPredictedPositives = 4, kPositives = 5 };

absl::Status Wrong(absl::string_view message) { return absl::InvalidArgumentError(message); }

}  // namespace

absl::StatusOr<Objective> Objective::Make(TaskKind task, int64_t outputs,
                                          const LocalConfig& local) {
  if (task == TaskKind::kAuto) return Wrong("the run's task has not been resolved");
  const bool one = task == TaskKind::kBinary || task == TaskKind::kRegression;
  if (one && outputs != 1) {
    return Wrong(
        absl::StrCat("binary and regression tasks need a model with one output, not ", outputs));
  }
  const size_t classes = task == TaskKind::kBinary ? 2 : static_cast<size_t>(outputs);
  if (task == TaskKind::kNextToken && !local.class_weights.empty()) {
    return Wrong("local.class_weights do not apply to the next-token task");
  }
  if (task == TaskKind::kRegression || task == TaskKind::kReconstruction) {
    if (!local.class_weights.empty() || local.label_smoothing != 0) {
      return Wrong(absl::StrCat("local.class_weights and local.label_smoothing do not apply to ",
                                Name(task)));
    }
  } else if (!local.class_weights.empty() && local.class_weights.size() != classes) {
    return Wrong(absl::StrCat("local.class_weights has ", local.class_weights.size(),
                              " numbers, the task has ", classes, " classes"));
  }
  for (const double weight : local.class_weights) {
    if (!(weight > 0 && std::isfinite(weight))) {
      return Wrong(absl::StrCat("local.class_weights are positive numbers, got ", weight));
    }
  }
  if (!(local.label_smoothing >= 0 && local.label_smoothing < 1)) {
    return Wrong(absl::StrCat("local.label_smoothing is in [0, 1), got ", local.label_smoothing));
  }
  Objective objective;
  objective.task_ = task;
  objective.outputs_ = static_cast<size_t>(outputs);
  objective.metrics_ = SchemaFor(task).sums.size();
  objective.weights_ = local.class_weights;
  objective.smoothing_ = local.label_smoothing;
  return objective;
}

Objective Objective::Plain(const ClassCounts& counts) const {
  Objective plain = *this;
  plain.counts_ = counts;
  plain.weights_.clear();
  plain.smoothing_ = 0;
  plain.among_.clear();
  return plain;
}

Objective Objective::Among(std::vector<bool> classes) const {
  Objective among = *this;
  among.among_ = std::move(classes);
  return among;
}

template <typename T>
void Objective::ClearAbsent(std::span<T> rows) const {
  if (among_.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!among_[i % outputs_]) rows[i] = T{0};
}

absl::Status Objective::CheckClasses(std::span<const int64_t> classes) const {
  if (task_ == TaskKind::kRegression || task_ == TaskKind::kReconstruction) return absl::OkStatus();
  const int64_t count = task_ == TaskKind::kBinary ? 2 : static_cast<int64_t>(outputs_);
  const int64_t least = task_ == TaskKind::kNextToken ? kNoLabel : 0;
  for (const int64_t label : classes) {
    if (label < least || label >= count) {
      return Wrong(absl::StrCat("a row has label ", label, ", the model knows 0 to ", count - 1,
                                ": set the number of classes to what the data has"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
Mean Objective::MeanOf(const Labels<T>& labels) const {
  double rows = static_cast<double>(std::max(labels.classes.size(), labels.targets.size()));
  if (task_ == TaskKind::kReconstruction) rows /= static_cast<double>(outputs_);
  if (task_ == TaskKind::kNextToken) {
    rows -= static_cast<double>(std::count(labels.classes.begin(), labels.classes.end(), kNoLabel));
  }
  Mean mean{.divisor = rows, .rows = rows};
  if (weighted()) {
    mean.divisor = 0;
    for (const int64_t label : labels.classes) {
      if (label != kNoLabel) mean.divisor += weights_[label];
    }
  }
  return mean;
}

template <typename T>
void Objective::Rate(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                     std::span<T> gradient, std::span<double> sums) const {
  Count(outputs.data(), outputs_, labels.classes, sums);
  switch (task_) {
    case TaskKind::kAuto:  // refused by Make
    case TaskKind::kClassification:
    case TaskKind::kNextToken:
      return RateClasses(outputs, labels, mean, gradient, sums);
    case TaskKind::kBinary:
      return RateBinary(outputs, labels, mean, gradient, sums);
    case TaskKind::kRegression:
      return RateRegression(outputs, labels, mean, gradient, sums);
    case TaskKind::kReconstruction:
      return RateReconstruction(outputs, labels, mean, gradient, sums);
  }
}

// Row loss: Σ_c q_c·(−log p_c) with q = (1−ε)·w_y·onehot(y) + (ε/C)·w, p = softmax(outputs).
template <typename T>
void Objective::RateClasses(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                            std::span<T> gradient, std::span<double> sums) const {
  const size_t classes = outputs_;
  const double uniform = smoothing_ / static_cast<double>(classes);
  const double per_row = 1.0 / mean.divisor;
  const double loss_scale = mean.rows / mean.divisor;
  double total_weight = static_cast<double>(classes);
  if (weighted()) {
    total_weight = 0;
    for (const double weight : weights_) total_weight += weight;
  }
  for (size_t row = 0; row < labels.classes.size(); ++row) {
    if (labels.classes[row] == kNoLabel) {
      if (!gradient.empty()) std::fill_n(gradient.data() + row * classes, classes, T{0});
      continue;
    }
    const T* z = outputs.data() + row * classes;
    const size_t label = static_cast<size_t>(labels.classes[row]);
    size_t best = 0;
    for (size_t c = 1; c < classes; ++c) {
      if (z[c] > z[best]) best = c;
    }
    const double top = z[best];
    double partition = 0;
    for (size_t c = 0; c < classes; ++c) partition += std::exp(static_cast<double>(z[c]) - top);
    const double log_partition = top + std::log(partition);

    const double sharp = (1.0 - smoothing_) * WeightOf(static_cast<int64_t>(label));
    double loss = sharp * (log_partition - z[label]);
    if (uniform > 0) {
      for (size_t c = 0; c < classes; ++c) {
        loss += uniform * WeightOf(static_cast<int64_t>(c)) * (log_partition - z[c]);
      }
    }
    sums[kExamples] += 1;
    sums[kLoss] += loss * loss_scale;
    if (best == label && !std::isnan(loss)) sums[kCorrect] += 1;

    if (gradient.empty()) continue;
    const double mass = sharp + uniform * total_weight;  // Σ_c q_c
    for (size_t c = 0; c < classes; ++c) {
      double q = uniform > 0 ? uniform * WeightOf(static_cast<int64_t>(c)) : 0.0;
      if (c == label) q += sharp;
      const double p = std::exp(static_cast<double>(z[c]) - log_partition);
      gradient[row * classes + c] = static_cast<T>((mass * p - q) * per_row);
    }
  }
}

// Row loss: w_y·(log(1 + e^z) − q·z) with q = y·(1−ε) + ε/2.
template <typename T>
void Objective::RateBinary(std::span<const T> outputs, const Labels<T>& labels, const Mean& mean,
                           std::span<T> gradient, std::span<double> sums) const {
  const double loss_scale = mean.rows / mean.divisor;
  for (size_t row = 0; row < labels.classes.size(); ++row) {
    const double z = outputs[row];
    const bool positive = labels.classes[row] == 1;
    const double weight = WeightOf(labels.classes[row]);
    const double q = (positive ? 1.0 - smoothing_ : 0.0) + 0.5 * smoothing_;
    const double tail = std::exp(-std::abs(z));  // never overflows
    const double loss = weight * (std::max(z, 0.0) - q * z + std::log1p(tail));
    const bool predicted = z > 0;
    sums[kExamples] += 1;
    sums[kLoss] += loss * loss_scale;
    if (predicted == positive && !std::isnan(z)) sums[kCorrect] += 1;
    if (predicted && positive) sums[kTruePositives] += 1;
    if (predicted) sums[kPredictedPositives] += 1;
    if (positive) sums[kPositives] += 1;
    if (gradient.empty()) continue;
    const double p = (z >= 0 ? 1.0 : tail) / (1.0 + tail);
    gradient[row] = static_cast<T>(weight * (p - q) / mean.divisor);
  }
}

template <typename T>
void Objective::RateRegression(std::span<const T> outputs, const Labels<T>& labels,
                               const Mean& mean, std::span<T> gradient,
                               std::span<double> sums) const {
  for (size_t row = 0; row < labels.targets.size(); ++row) {
    const double error =
        static_cast<double>(outputs[row]) - static_cast<double>(labels.targets[row]);
    sums[kExamples] += 1;
    sums[kLoss] += error * error;
    sums[kAbsoluteError] += std::abs(error);
    if (!gradient.empty()) gradient[row] = static_cast<T>(2.0 * error / mean.divisor);
  }
}

// Row loss: Σ_k (z_k − x_k)²/D.
template <typename T>
void Objective::RateReconstruction(std::span<const T> outputs, const Labels<T>& labels,
                                   const Mean& mean, std::span<T> gradient,
                                   std::span<double> sums) const {
  const double features = static_cast<double>(outputs_);
  const double slope = 2.0 / (features * mean.divisor);
  for (size_t first = 0; first < labels.targets.size(); first += outputs_) {
    double squares = 0;
    for (size_t i = first; i < first + outputs_; ++i) {
      const double error = static_cast<double>(outputs[i]) - static_cast<double>(labels.targets[i]);
      squares += error * error;
      if (!gradient.empty()) gradient[i] = static_cast<T>(slope * error);
    }
    sums[kExamples] += 1;
    sums[kLoss] += squares / features;
  }
}

template void Objective::ClearAbsent(std::span<float>) const;
template void Objective::ClearAbsent(std::span<double>) const;
template Mean Objective::MeanOf(const Labels<float>&) const;
template Mean Objective::MeanOf(const Labels<double>&) const;
template void Objective::Rate(std::span<const float>, const Labels<float>&, const Mean&,
                              std::span<float>, std::span<double>) const;
template void Objective::Rate(std::span<const double>, const Labels<double>&, const Mean&,
                              std::span<double>, std::span<double>) const;

}  // namespace macaw::training
