#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/run_config.h"
#include "core/vector.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "training/api/stage.h"

namespace macaw::training {

// The client whose turn it is. Rows of a split that no stage names may be empty.
struct ClientTask {
  uint64_t seed = 0;  // of the run: shuffles, augmentation and dropout are drawn from (seed, round,
                      // phase, client)
  Round round{};
  Phase phase{};
  ClientId client{};
  data::Rows train;
  data::Rows validation;
  data::Rows test;
};

// Carries out local plans on one slot: owns the slot's replica (one flat vector; parameters,
// gradient and momentum are views of it) and its batch buffers, all allocated once. One thread at a
// time, the one that made it. The bits of an outcome depend on plan, task and numeric profile only,
// never on what ran before.
class LocalTrainer {
 public:
  virtual ~LocalTrainer() = default;

  // Errors name the client and the stage ("stage 0: the loss is not finite after step 3" is *not*
  // an error: a diverged update is refused where it is added, so that every trainer agrees).
  virtual absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                        const ClientTask& task) = 0;

  // Metric sums of `model` over rows [begin, end), in one fixed order and in batches of at most
  // `batch` rows.
  virtual absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows,
                                              uint64_t begin, uint64_t end, uint32_t batch) = 0;

  virtual std::string name() const = 0;  // "eager"
};

// What a trainer needs that no client changes.
struct TrainerSetup {
  models::ModelSpec spec;
  TaskKind task = TaskKind::kClassification;
  LocalConfig local;  // class weights, label smoothing, trainer choice
  TransformConfig transform;
  data::FeatureType feature_type = data::FeatureType::kF32;
  DType dtype = DType::kF32;
  // Counts every batch that is trained on or evaluated; outlives the trainer. Null: nobody asks.
  WorkCounter* work = nullptr;
};

// training/eager: any model, LibTorch, one intra-op thread.
absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeEagerTrainer(const TrainerSetup& setup);

// By TrainerSetup::local.trainer. "fused": flat CPU kernels for float32 models of common layers, an
// error where it cannot do what the run asks. "auto": fused where it can, for plans that it cannot
// carry out, and otherwise, eager.
absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(const TrainerSetup& setup);

// What the results of the trainer that MakeTrainer makes depend on, in this process; of "auto",
// also what those of the plans depend on that only LibTorch can carry out.
NumericProfile ProfileOf(const TrainerSetup& setup);
// What this process's eager results depend on: LibTorch's version, the instruction set its kernels
// choose, libc.
NumericProfile EagerProfile();

}  // namespace macaw::training
