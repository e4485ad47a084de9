#pragma once

#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/gather.h"
#include "models/network.h"
#include "training/api/trainer.h"
#include "training/batch_order.h"
#include "training/local_optimizer.h"
#include "training/objective.h"
#include "training/stage_inputs.h"
#include "training/tensor_steps.h"
#include "training/torch/eager_batch.h"
#include "training/torch/references.h"
#include "training/torch/replica.h"
#include "training/torch/tensor_optimizer.h"

namespace macaw::training {

// Trains any model with LibTorch's eager ops and autograd. The network is a function of (batch,
// parameters). Parameters and gradients are views of the replica's two flat vectors; everything
// after the gradient is one pass of our own code over them. All memory except autograd's is kept,
// and grows only with the largest batch and plan.
//
// On a device of LibTorch's (device.h) parameters, gradients, batches and the optimizer's state are
// tensors there, and a step waits for nothing. Ends and hooks get copies on the host. All of it,
// from the first zeros on, is on one stream of the trainer's own; what leaves it, or comes to it,
// is copied, and such a copy waits for the stream. So no stream ever waits for another one.
class EagerTrainer final : public LocalTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<EagerTrainer>> Make(const TrainerSetup& setup);

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override;
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override;
  std::string name() const override { return "torch"; }

 private:
  // A stage with everything it refers to, found and checked.
  struct StageRun;

  EagerTrainer(const TrainerSetup& setup, Objective objective, at::Device device,
               std::optional<c10::Stream> stream);

  absl::StatusOr<StageOutcome> RunStage(const Stage& stage, size_t index,
                                        const std::vector<StageOutcome>& before,
                                        const ClientTask& task);
  absl::StatusOr<StageOutcome> Train(const StageRun& run);
  // Adds the gradient of a batch's mean loss to the replica's.
  absl::Status Differentiate(const StageRun& run, std::span<const uint32_t> positions,
                             const data::AugmentKey& augment, StageOutcome& outcome);
  absl::StatusOr<StageOutcome> Gradient(const StageRun& run);
  absl::StatusOr<StageOutcome> Loss(const StageRun& run);
  // The step of the batch whose gradient the replica has.
  void Step(const StageRun& run, const StreamKey& dropout);
  template <typename T>
  void StepOnHost(const StageRun& run, const StreamKey& dropout);
  void StepOnDevice(const StageRun& run, const StreamKey& dropout);
  // Restores the running statistics that the stage must not change: LibTorch updates those of a
  // frozen batch norm in place, too.
  void KeepFrozenBuffers(const StageRun& run);

  // The mean over all rows of a client. Reads the labels if classes have different weights.
  absl::StatusOr<Mean> MeanOverAll(const Objective& objective, const data::Rows& rows) const;
  // The same over some of them, by their positions.
  absl::StatusOr<Mean> MeanOver(const Objective& objective, const data::Rows& rows,
                                std::span<const uint32_t> positions) const;
  std::span<const uint32_t> Positions(uint64_t begin, uint64_t end);
  // Tensors over `point`, for reading only.
  std::vector<at::Tensor> Reading(ConstVectorView point);

  const TaskKind task_;
  const at::Device device_;
  const std::optional<c10::Stream> stream_;
  const data::FeatureType feature_type_;
  const models::Network network_;
  const data::BatchGather gather_;
  const Objective plain_;  // for evaluation
  EagerBatch batch_;
  Replica replica_;
  BatchOrder order_;
  TensorSteps tensor_steps_;
  LocalOptimizer optimizer_;
  TensorOptimizer device_optimizer_;
  References references_;
  KeptEnds kept_;       // of all stages but the last, whose end stays in the replica
  FlatVector v_sum_;    // sum of a correction's terms
  FlatVector aligned_;  // a copy of a point that is not 64-byte aligned
  std::vector<uint32_t> positions_;
};

}  // namespace macaw::training
