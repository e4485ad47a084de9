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
#include "training/torch/replica.h"
#include "training/torch/tensor_objective.h"

namespace macaw::training {

// What a stage asks of a batch: the loss, and the entries that may move.
struct StageLoss {
  const Objective* objective = nullptr;
  const Hooks* hooks = nullptr;  // null: use the objective
  // The tensors of each of the stage's references.
  const std::vector<std::vector<at::Tensor>>* references = nullptr;
  const std::vector<bool>* trainable = nullptr;  // null: all entries move
};

// A slot's current batch: gathered into buffers that are allocated once, then evaluated or
// differentiated at any point. The buffers start at a multiple of 64 bytes, because other
// alignments give other bits in MKL. For a device they are copied there. Methods throw what
// LibTorch throws. One thread at a time. `network` must outlive it.
class EagerBatch final : public StepBatch {
 public:
  // Counts each batch in `work`, which outlives it and may be null. `device`: of the network.
  // `autocast`: passes are LibTorch's autocast in bfloat16 (precision.h).
  EagerBatch(const models::Network& network, const data::BatchGather& gather, TaskKind task,
             DType dtype, WorkCounter* work, at::Device device, bool autocast);

  // Errors name a label or token that is out of the model's range.
  absl::Status Load(const data::Rows& rows, std::span<const uint32_t> positions,
                    const data::AugmentKey* augment, const Objective& objective);
  Mean MeanOf(const Objective& objective) const;

  // Adds the gradient of the mean loss at `replica` to the replica's gradient, and the batch's sums
  // to `sums`, which on a device have them after TakeSums. `dropout` is the key of the step's
  // masks; null: no dropout. `statistics` tells batch norm what to use; kBatchAndMove updates the
  // replica's buffers.
  void Differentiate(Replica& replica, const StageLoss& loss, const Mean& mean,
                     const StreamKey* dropout, models::Statistics statistics, MetricSums& sums);
  void TakeSums(MetricSums& sums) { on_device_.Take(sums); }
  // Adds the batch's sums at `parameters` to `sums`, without dropout and gradient.
  void Rate(std::span<const at::Tensor> parameters, const StageLoss& loss, const Mean& mean,
            MetricSums& sums);
  // Lets a hook change the gradient of `replica`. `loss` and `dropout` are those passed to
  // Differentiate.
  void Correct(Replica& replica, const StageLoss& loss, const StreamKey* dropout);

  at::Tensor features() const override { return input_; }
  at::Tensor labels() const override { return labels_.defined() ? labels_ : HostLabels(); }
  ConstVectorView GradientAt(ConstVectorView point) override;
  ConstVectorView GradientAtOwn(VectorView point) override;
  models::Outputs OutputsAt(ConstVectorView point) override;

 private:
  struct Step {
    StageLoss loss;
    const StreamKey* dropout = nullptr;
  };

  ConstVectorView GradientBy(ConstVectorView point, models::Statistics statistics);
  models::Outputs Forward(std::span<const at::Tensor> parameters, RandomStream* dropout,
                          models::Statistics statistics) const;
  void Reserve(size_t rows);
  void TakeLengths(const data::Rows& rows, std::span<const uint32_t> positions);
  at::Tensor Lengths() const;  // for Network::Forward
  at::Tensor HostLabels() const;
  void Send();                                              // to the device
  void LabelAllPositions(std::span<const int32_t> tokens);  // of the batch
  // The hook's loss on the batch's representations, summed over its rows. With `gradient`, that of
  // the mean over `rows` rows, as a tensor like the representation; left undefined where it is 0.
  double RateRepresentations(const at::Tensor& representation, const StageLoss& loss, double rows,
                             at::Tensor* gradient) const;
  // A matrix on the host with a row for an example.
  at::Tensor RowsOf(const at::Tensor& representation) const;
  void RateOutputs(const at::Tensor& logits, const Objective& objective, const Mean& mean,
                   std::span<std::byte> gradient, std::span<double> sums);

  const models::Network& network_;
  const data::BatchGather& gather_;
  const TaskKind task_;
  const DType dtype_;
  const at::Device device_;
  const bool autocast_;
  WorkCounter* const work_;
  bool has_dropout_ = false;

  size_t rows_ = 0;
  size_t capacity_ = 0;
  AlignedBuffer features_;
  AlignedBuffer targets_;
  AlignedBuffer logit_gradient_;
  std::vector<int64_t> classes_;  // for next-token tasks: per position
  std::vector<int64_t> row_classes_;
  std::vector<int64_t> lengths_;        // positions in use of each row; empty: all
  at::Tensor features_tensor_;          // a view of the first rows_ rows
  at::Tensor input_;                    // the same, or its copy on the device
  at::Tensor labels_, device_lengths_;  // on the device; undefined on the host
  TensorObjective on_device_;
  at::Tensor logit_gradient_tensor_;    // a view of the first rows_ rows
  std::optional<Step> step_;            // only while a hook runs
  std::optional<Replica> other_point_;  // created by the first GradientAt
};

}  // namespace macaw::training
