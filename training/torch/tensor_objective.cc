#include "training/torch/tensor_objective.h"

#include <ATen/ATen.h>

#include <vector>

namespace macaw::training {
namespace {

using at::Tensor;

// The losses of the rows, in the graph, and the sums behind that of the losses.
struct Rated {
  Tensor losses;             // [rows]; 0 where a row does not count
  Tensor count;              // rows that count
  std::vector<Tensor> sums;  // numbers, in the order of SchemaFor, without examples and loss
};

Tensor WeightsLike(const Objective& objective, const Tensor& outputs) {
  const std::span<const double> weights = objective.class_weights();
  if (weights.empty()) return {};
  return at::tensor(at::ArrayRef<double>(weights.data(), weights.size())).to(outputs.options());
}

// Outputs that do not count are 0.
Tensor Among(const Objective& objective, const Tensor& logits) {
  const std::vector<bool>& among = objective.among();
  if (among.empty()) return logits;
  Tensor absent = at::empty({static_cast<int64_t>(among.size())}, at::kBool);
  for (size_t c = 0; c < among.size(); ++c) absent.mutable_data_ptr<bool>()[c] = !among[c];
  return logits.masked_fill(absent.to(logits.device()), 0);
}

Rated RateClasses(const Objective& objective, const Tensor& outputs, const Tensor& labels) {
  const Tensor logits = Among(objective, outputs.reshape({-1, outputs.size(-1)}));
  const Tensor classes = labels.reshape({-1});
  const Tensor losses =
      at::cross_entropy_loss(logits, classes, WeightsLike(objective, logits), at::Reduction::None,
                             /*ignore_index=*/kNoLabel, objective.smoothing());
  const Tensor counted = classes != kNoLabel;
  // As on the host: a row whose loss is not a number is not correct.
  const Tensor correct =
      logits.detach().argmax(1).eq(classes) & losses.detach().isnan().logical_not();
  return {.losses = losses, .count = counted.sum(), .sums = {(correct & counted).sum()}};
}

Rated RateBinary(const Objective& objective, const Tensor& outputs, const Tensor& labels) {
  const Tensor z = outputs.reshape({-1});
  const Tensor positive = labels.eq(1);
  const double smoothing = objective.smoothing();
  const Tensor q = positive.to(z.scalar_type()) * (1 - smoothing) + 0.5 * smoothing;
  const Tensor weights = WeightsLike(objective, z);
  const Tensor losses = at::binary_cross_entropy_with_logits(
      z, q, weights.defined() ? weights.index_select(0, labels) : Tensor(), {},
      at::Reduction::None);
  const Tensor predicted = z.detach() > 0;
  const Tensor correct = predicted.eq(positive) & z.detach().isnan().logical_not();
  return {.losses = losses,
          .count = at::scalar_tensor(z.numel(), labels.options()),
          .sums = {correct.sum(), (predicted & positive).sum(), predicted.sum(), positive.sum()}};
}

Rated RateNumbers(const Tensor& outputs, const Tensor& targets) {
  const Tensor y = outputs.reshape({-1});
  return {.losses = at::mse_loss(y, targets, at::Reduction::None),
          .count = at::scalar_tensor(y.numel(), targets.options().dtype(at::kLong)),
          .sums = {(y.detach().to(at::kDouble) - targets.to(at::kDouble)).abs().sum()}};
}

Rated RateInputs(const Tensor& outputs, const Tensor& inputs) {
  return {
      .losses =
          at::mse_loss(outputs, inputs.to(outputs.scalar_type()), at::Reduction::None).mean({1}),
      .count = at::scalar_tensor(inputs.size(0), inputs.options().dtype(at::kLong)),
      .sums = {}};
}

Rated RateRows(const Objective& objective, const Tensor& outputs, const Tensor& labels) {
  switch (objective.task()) {
    case TaskKind::kBinary:
      return RateBinary(objective, outputs, labels);
    case TaskKind::kRegression:
      return RateNumbers(outputs, labels);
    case TaskKind::kReconstruction:
      return RateInputs(outputs, labels);
    default:
      return RateClasses(objective, outputs, labels);
  }
}

}  // namespace

Tensor TensorObjective::Rate(const Objective& objective, const Tensor& outputs,
                             const Tensor& labels, const Mean& mean) {
  Rated rated = RateRows(objective, outputs, labels);
  // Of texts without a token nothing counts, and all losses are 0.
  const double divisor = mean.rows > 0 ? mean.divisor : 1;
  const double scale = objective.task() == TaskKind::kRegression ? 1 : mean.rows / divisor;
  std::vector<Tensor> sums = {rated.count.to(at::kDouble),
                              rated.losses.detach().to(at::kDouble).sum() * scale};
  for (const Tensor& sum : rated.sums) sums.push_back(sum.to(at::kDouble));
  const Tensor all = at::stack(sums);
  sums_.defined() ? sums_.add_(all) : sums_ = all;
  return rated.losses.sum() / divisor;
}

void TensorObjective::Take(std::span<double> sums) {
  if (!sums_.defined()) return;
  const Tensor taken = sums_.to(at::kCPU);
  for (int64_t i = 0; i < taken.numel(); ++i)
    sums[static_cast<size_t>(i)] += taken.const_data_ptr<double>()[i];
  sums_ = Tensor();
}

}  // namespace macaw::training
