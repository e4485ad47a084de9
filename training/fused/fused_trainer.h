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

// Part of every numeric profile: raise it with each change that gives other bits.
constexpr int kVersion = 2;

// Whether this trainer can carry out what the run asks of every stage: an error says in a few words
// what it cannot (a layer, float64, ...), so that the caller can choose the eager trainer.
absl::Status Supports(const TrainerSetup& setup);
// Whether it is also the faster one there, which `local.trainer = "auto"` asks: an error says in a
// few words why not.
absl::Status Prefers(const TrainerSetup& setup, Isa isa);
// Whether it can carry out a plan's stages: none has hooks, the optimizer is SGD, and the gradient
// alone is clipped.
absl::Status Supports(const LocalPlan& plan);

// Trains a model as a chain of blocks on flat float vectors: no tensor, no autograd, and no
// allocation in a step once the largest batch has been seen. The client's weights are packed as the
// blocks like them at the start of a stage and written back at its end. Same rows, masks and order
// of operations as the eager trainer; sums are formed in another order, so results agree to
// rounding.
class FusedTrainer final : public LocalTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<FusedTrainer>> Make(const TrainerSetup& setup, Isa isa);

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override;
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override;
  std::string name() const override { return "fused"; }

 private:
  struct StageRun;  // a stage with everything it refers to looked up and checked

  FusedTrainer(const TrainerSetup& setup, Isa isa, Program program, Objective objective);

  absl::StatusOr<StageOutcome> RunStage(const LocalPlan& plan, size_t index,
                                        const std::vector<StageOutcome>& before,
                                        const ClientTask& task);
  absl::StatusOr<StageOutcome> Train(const StageRun& run, const ClientTask& task);
  absl::StatusOr<StageOutcome> Gradient(const StageRun& run);
  absl::StatusOr<StageOutcome> Loss(const StageRun& run);

  absl::Status Step(const StageRun& run, std::span<const uint32_t> positions,
                    const data::AugmentKey& augment, uint64_t step, MetricSums& sums);
  void Update(const StageRun& run, size_t block, double scale);
  // Writes the mean gradient over the rows at weights_ to gradient_ and calls done(block) where a
  // block's is complete, from the last one down. `mean` unset: over these rows. Without rows it
  // does nothing.
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
  const Objective plain_;  // what evaluation reports
  const bool has_dropout_;
  Feed feed_;
  Tape tape_;
  BatchOrder order_;
  // Packed: the point, and what belongs to each of its numbers. The last four are made when first
  // needed.
  AlignedBuffer weights_, gradient_, total_, momentum_, anchor_, v_;
  FlatVector v_sum_;              // of a correction of several terms, in the model's layout
  std::vector<FlatVector> ends_;  // per stage of a plan
  std::vector<uint32_t> batch_;   // the positions of the step under way
  std::vector<uint32_t> positions_;
  std::vector<float> logits_, logit_gradient_;  // without padding, for Objective
};

}  // namespace macaw::training::fused
