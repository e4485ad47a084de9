// The trainer of a lane: what it is made from, and which of its errors are its device's.
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/lane.h"
#include "worker/lasting_fault.h"

namespace macaw::worker {

training::TrainerSetup TrainerSetupFor(const RunContext& context, const data::Dataset& dataset) {
  auto setup = training::TrainerSetup::Of(context.run, context.spec, dataset.info().feature_type);
  setup.hooks = context.hooks;
  setup.slices = context.slices;
  setup.statistics = context.statistics;
  setup.backend = context.backend;
  return setup;
}

absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainerFor(const RunContext& context,
                                                                       const data::Dataset& dataset,
                                                                       WorkCounter* work,
                                                                       uint32_t lane) {
  training::TrainerSetup setup = TrainerSetupFor(context, dataset);
  setup.lane = lane;
  setup.work = work;
  auto trainer = context.backends->MakeTrainer(setup);
  if (absl::IsUnavailable(trainer.status())) return LostDevice(trainer.status().message());
  return trainer;
}

absl::Status Lane::OfTrainer(const absl::Status& status) const {
  const bool lost = absl::IsUnavailable(status) && trainer_->device_seat().has_value();
  return lost ? LostDevice(status.message()) : status;
}

}  // namespace macaw::worker
