#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/buffer.h"
#include "data/gather.h"
#include "training/api/trainer.h"

namespace macaw::training {

// Carries out plans of statistics (StageKind::kStatistics) on the host, and gives all others to a
// back end's trainer, which also evaluates. The same bits with any back end.
class StatisticsTrainer final : public LocalTrainer {
 public:
  // `inner`: the trainer of `setup`. Requires features that are numbers.
  StatisticsTrainer(const TrainerSetup& setup, std::unique_ptr<LocalTrainer> inner);

  TurnOutcome Run(const LocalPlan& plan, const ClientTask& task) override;
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override {
    return inner_->Evaluate(model, rows, begin, end, batch);
  }
  std::string name() const override { return inner_->name(); }

 private:
  absl::StatusOr<StageOutcome> Sum(const Stage& stage, const std::vector<StageOutcome>& before,
                                   const ClientTask& task);

  const TrainerSetup setup_;
  const std::unique_ptr<LocalTrainer> inner_;
  const data::BatchGather gather_;
  AlignedBuffer features_, targets_;
  std::vector<int64_t> classes_;
  std::vector<uint32_t> positions_;
  std::vector<FlatVector> ends_;  // by stage of a plan
};

}  // namespace macaw::training
