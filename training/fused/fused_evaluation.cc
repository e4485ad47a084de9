// What the fused trainer does beside training: rating rows.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "training/fused/fused_trainer.h"
#include "training/stage_inputs.h"

namespace macaw::training::fused {
namespace {

// Rows per evaluation pass; it does not affect any bits.
constexpr size_t kRatedRows = 64;

}  // namespace

SoftmaxRule FusedTrainer::RuleOf(const LocalConfig& local) const {
  return {.classes = static_cast<size_t>(spec_.outputs),
          .weights = local.class_weights,
          .smoothing = local.label_smoothing};
}

absl::StatusOr<MetricSums> FusedTrainer::Evaluate(ConstVectorView model, const data::Rows& rows,
                                                  uint64_t begin, uint64_t end, uint32_t batch) {
  const auto evaluate = [&]() -> absl::StatusOr<MetricSums> {
    MACAW_RETURN_IF_ERROR(CheckVector(spec_, model, "model"));
    MACAW_RETURN_IF_ERROR(feed_.Check(rows));
    if (begin > end || end > rows.size() || batch == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(rows.size(), " rows in all, in batches of ", batch));
    }
    program_.Pack(model, weights_.As<float>());
    MetricSums sums(plain_.metrics());
    const Mean each{.divisor = 1, .rows = 1};
    MACAW_RETURN_IF_ERROR(RateRows(plain_, RuleOf(LocalConfig()), each, rows, begin, end, sums));
    return sums;
  };
  absl::StatusOr<MetricSums> sums = evaluate();
  if (!sums.ok())
    return Annotate(sums.status(), absl::StrCat("evaluation of rows ", begin, " to ", end));
  return sums;
}

absl::Status FusedTrainer::RateRows(const Objective& objective, const SoftmaxRule& rule,
                                    const Mean& mean, const data::Rows& rows, uint64_t begin,
                                    uint64_t end, MetricSums& sums) {
  for (uint64_t first = begin; first < end; first += kRatedRows) {
    const uint64_t last = std::min<uint64_t>(first + kRatedRows, end);
    const size_t n = last - first;
    tape_.Reserve(n);
    MACAW_RETURN_IF_ERROR(feed_.Load(rows, Positions(first, last), nullptr, objective, tape_.in()));
    Rate(objective, rule, mean, n, tape_.Forward(n, weights_.As<float>(), nullptr), sums);
  }
  return absl::OkStatus();
}

// Adds the sums of n rows, and writes the gradient where Tape::Backward expects it.
void FusedTrainer::Rate(const Objective& objective, const SoftmaxRule& rule, const Mean& mean,
                        size_t n, const float* logits, std::span<double> sums) {
  const Labels<float> labels = feed_.labels();
  float* const gradient = tape_.d_out();
  if (task_ == TaskKind::kClassification && objective.among().empty() &&
      kernels_.softmax(rule, mean, n, logits, labels.classes.data(), gradient, sums)) {
    objective.Count(logits, program_.out().stride(), labels.classes, sums);
    return;
  }
  const size_t outputs = rule.classes, stride = program_.out().stride();
  logits_.resize(n * outputs);
  logit_gradient_.resize(n * outputs);
  for (size_t r = 0; r < n; ++r) {
    std::copy_n(logits + r * stride, outputs, logits_.data() + r * outputs);
  }
  objective.ClearAbsent<float>(logits_);
  objective.Rate<float>(logits_, labels, mean, logit_gradient_, sums);
  objective.ClearAbsent<float>(logit_gradient_);
  for (size_t r = 0; r < n; ++r) {
    std::copy_n(logit_gradient_.data() + r * outputs, outputs, gradient + r * stride);
    std::fill(gradient + r * stride + outputs, gradient + (r + 1) * stride, 0.0f);
  }
}

absl::StatusOr<Mean> FusedTrainer::MeanOver(const Objective& objective, const data::Rows& rows,
                                            std::span<const uint32_t> positions) const {
  const double count = static_cast<double>(positions.size());
  Mean mean{.divisor = count, .rows = count};
  if (!objective.weighted()) return mean;
  mean.divisor = 0;
  for (const uint32_t position : positions) {
    const int64_t label = rows.block.classes[rows.at(position)];
    MACAW_RETURN_IF_ERROR(objective.CheckClasses(std::span(&label, 1)));
    mean.divisor += objective.WeightOf(label);
  }
  return mean;
}

std::span<const uint32_t> FusedTrainer::Positions(uint64_t begin, uint64_t end) {
  positions_.resize(end - begin);
  std::iota(positions_.begin(), positions_.end(), static_cast<uint32_t>(begin));
  return positions_;
}

}  // namespace macaw::training::fused
