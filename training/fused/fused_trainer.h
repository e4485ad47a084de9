#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "training/api/trainer.h"
#include "training/batch_order.h"
#include "training/fused/feed.h"
#include "training/fused/isa.h"
#include "training/fused/kernels.h"
#include "training/fused/program.h"
#include "training/fused/tape.h"
#include "training/local_sgd.h"
#include "training/objective.h"

namespace macaw::training::fused {

// Part of every numeric profile. Increase it with each change that gives other bits.
constexpr int kVersion = 3;

// Whether this trainer can do what the run asks of every stage. An error says briefly what it
// cannot do (a layer, float64, ...), so that the caller can choose another back end.
absl::Status Supports(const TrainerSetup& setup);
// Whether it can carry out a stage: no hooks, SGD, and clipping of the gradient only.
absl::Status Supports(const Stage& stage);

// Trains a model as a chain of blocks on flat float vectors: no tensors, no autograd, and no
// allocation in a step once the largest batch was seen. At the start of a stage the client's
// weights are packed into the blocks' order, at its end they are written back. Rows, masks and the
// order of operations are those of the eager trainer; sums are formed in another order, so results
// agree up to rounding.
class FusedTrainer final : public LocalTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<FusedTrainer>> Make(const TrainerSetup& setup, Isa isa);

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override;
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override;
  std::string name() const override { return "fused"; }

 private:
  struct StageRun;  // a stage with everything it refers to, found and checked

  FusedTrainer(const TrainerSetup& setup, Isa isa, Program program, Objective objective);

  absl::StatusOr<StageOutcome> RunStage(const Stage& stage, size_t index,
                                        const std::vector<StageOutcome>& before,
                                        const ClientTask& task);
  absl::StatusOr<StageOutcome> Train(const StageRun& run, const ClientTask& task);
  absl::StatusOr<StageOutcome> Gradient(const StageRun& run);
  absl::StatusOr<StageOutcome> Loss(const StageRun& run);

  absl::Status Step(const StageRun& run, std::span<const uint32_t> positions,
                    const data::AugmentKey& augment, uint64_t step, MetricSums& sums);
  void Update(const StageRun& run, size_t block, double scale);
  // Writes the mean gradient over the rows at weights_ to gradient_, and calls done(block) when a
  // block's gradient is complete, from the last block to the first. If `mean` is unset, the mean is
  // over these rows. Does nothing without rows.
  template <typename Done>
  absl::Status Differentiate(const StageRun& run, std::span<const uint32_t> positions,
                             const data::AugmentKey* augment, const std::optional<Mean>& mean,
                             RandomStream* dropout, MetricSums& sums, const Done& done);
  void Rate(const Objective& objective, const SoftmaxRule& rule, const Mean& mean, size_t n,
            const float* logits, std::span<double> sums);
  absl::Status RateRows(const Objective& objective, const SoftmaxRule& rule, const Mean& mean,
                        const data::Rows& rows, uint64_t begin, uint64_t end, MetricSums& sums);

  // `local` must outlive it.
  SoftmaxRule RuleOf(const LocalConfig& local) const;
  void ClearFrozen(const StageRun& run);
  ConstVectorView UnpackEnd(size_t stage, const AlignedBuffer& packed);
  absl::StatusOr<Mean> MeanOver(const Objective& objective, const data::Rows& rows,
                                std::span<const uint32_t> positions) const;
  std::span<const uint32_t> Positions(uint64_t begin, uint64_t end);

  const TaskKind task_;
  const models::ModelSpec spec_;
  const Program program_;
  const Kernels& kernels_;
  const Objective plain_;  // for evaluation
  const bool has_dropout_;
  Feed feed_;
  Tape tape_;
  BatchOrder order_;
  // Packed: the weights and the vectors that belong to them. The last four are allocated when first
  // needed.
  AlignedBuffer weights_, gradient_, total_, momentum_, anchor_, v_;
  FlatVector v_sum_;              // sum of a correction's terms, in the model's layout
  std::vector<FlatVector> ends_;  // per stage of a plan
  std::vector<uint32_t> batch_;   // positions of the current step
  std::vector<uint32_t> positions_;
  std::vector<float> logits_, logit_gradient_;  // without padding, for Objective
};

}  // namespace macaw::training::fused
