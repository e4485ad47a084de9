#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/slice.h"
#include "training/api/backend.h"
#include "training/api/trainer.h"

namespace macaw::training {

// Gives each plan to a trainer of the model that its stages are of (Stage::width): the whole one,
// or a narrower one of the same back end, which is made by the first plan that needs it. A narrower
// model so takes the time and memory of a model of its size. Evaluates the whole model.
//
// With hooks, which only LibTorch has, the whole back end has to be LibTorch.
class SlicedTrainer final : public LocalTrainer {
 public:
  // `whole`: the trainer of `setup` that `backend`, which outlives this, has made.
  SlicedTrainer(TrainerSetup setup, std::unique_ptr<LocalTrainer> whole, const Backend& backend)
      : setup_(std::move(setup)), whole_(std::move(whole)), backend_(backend) {}

  TurnOutcome Run(const LocalPlan& plan, const ClientTask& task) override;
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override {
    return whole_->Evaluate(model, rows, begin, end, batch);
  }
  std::string name() const override { return whole_->name(); }

 private:
  struct Narrow {
    models::Width width;
    std::unique_ptr<LocalTrainer> trainer;
  };
  absl::StatusOr<LocalTrainer*> Of(const models::Width& width);

  const TrainerSetup setup_;
  const std::unique_ptr<LocalTrainer> whole_;
  const Backend& backend_;
  std::vector<Narrow> narrow_;  // a few
};

}  // namespace macaw::training
