#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/work_counter.h"
#include "data/gather.h"
#include "models/network.h"
#include "training/hooks.h"
#include "training/objective.h"
#include "training/replica.h"

namespace macaw::training {

// What one stage asks of a batch: the loss, and what may move.
struct StageLoss {
  const Objective* objective = nullptr;
  const Hooks* hooks = nullptr;                  // null: the objective
  const std::vector<bool>* trainable = nullptr;  // null: all entries
};

// The batch in a slot's hands: gathered into buffers that start on 64 bytes and are allocated once
// (a batch that lies elsewhere gives other bits in MKL), then rated or differentiated at any point.
// Methods throw what LibTorch throws. One thread at a time. `network` must outlive it.
class EagerBatch final : public StepBatch {
 public:
  // Counts each batch in `work`, which outlives it and may be null.
  EagerBatch(const models::Network& network, const data::BatchGather& gather, TaskKind task,
             DType dtype, WorkCounter* work);

  // Errors name a label or token that the model does not know.
  absl::Status Load(const data::Rows& rows, std::span<const uint32_t> positions,
                    const data::AugmentKey* augment, const Objective& objective);
  Mean MeanOf(const Objective& objective) const;

  // Adds the gradient of the mean loss at `replica` to its gradient, and the batch's sums to
  // `sums`. `dropout` names the step's masks; null: the whole network, without dropout.
  // `statistics` are batch norm's; kBatchAndMove moves the replica's buffers.
  void Differentiate(Replica& replica, const StageLoss& loss, const Mean& mean,
                     const StreamKey* dropout, models::Statistics statistics, MetricSums& sums);
  // The batch's sums at `parameters`, without dropout or gradient.
  void Rate(std::span<const at::Tensor> parameters, const StageLoss& loss, const Mean& mean,
            MetricSums& sums);
  // Lets a hook rewrite the gradient of `replica`; `loss` and `dropout` are what Differentiate was
  // given.
  void Correct(Replica& replica, const StageLoss& loss, const StreamKey* dropout);

  at::Tensor features() const override { return features_tensor_; }
  at::Tensor labels() const override;
  ConstVectorView GradientAt(ConstVectorView point) override;
  models::Outputs OutputsAt(ConstVectorView point) override;

 private:
  struct Step {
    StageLoss loss;
    const StreamKey* dropout = nullptr;
  };

  void Reserve(size_t rows);
  // Next-token labels: at each position in use the token behind it, at the last one the row's own.
  absl::Status LabelPositions(const data::Rows& rows, std::span<const uint32_t> positions);
  void RateOutputs(const at::Tensor& logits, const Objective& objective, const Mean& mean,
                   std::span<std::byte> gradient, std::span<double> sums);

  const models::Network& network_;
  const data::BatchGather& gather_;
  const TaskKind task_;
  const DType dtype_;
  WorkCounter* const work_;
  bool has_dropout_ = false;

  size_t rows_ = 0;
  size_t capacity_ = 0;
  AlignedBuffer features_;
  AlignedBuffer targets_;
  AlignedBuffer logit_gradient_;
  std::vector<int64_t> classes_;  // of next-token tasks, a position each
  std::vector<int64_t> row_classes_;
  at::Tensor features_tensor_;          // of rows_ rows
  at::Tensor logit_gradient_tensor_;    // of rows_ rows
  std::optional<Step> step_;            // while a hook runs
  std::optional<Replica> other_point_;  // made by the first GradientAt
};

}  // namespace macaw::training
