#include "bench/load/training.h"

#include <future>
#include <utility>

#include "algorithms/around/channels.h"
#include "algorithms/builtin.h"
#include "bench/programs.h"
#include "core/clock.h"
#include "proto/fleet/vector_codec.h"
#include "training/api/round_local.h"

namespace macaw::bench {

Training::Training(const RunPlan& run, const data::Dataset& dataset)
    : dataset_(dataset), backends_("") {
  registry_.AddBuiltin(algorithms::BuiltinAlgorithms());
  context_.run = run;
  context_.backends = &backends_;
  const auto spec = models::BuildSpec(run.model, run.dtype);
  Check(spec.status(), "model");
  context_.spec = *spec;
  const algorithms::Description* const algorithm = *registry_.Find(run.algorithm.name);
  const algorithms::Setup setup = algorithms::SetupOf(run, context_.spec.layout);
  auto schema = algorithms::MakeSchema(*algorithm, setup);
  Check(schema.status(), "algorithm");
  context_.schema = *std::move(schema);
  auto client = algorithm->client(setup);
  Check(client.status(), "algorithm");
  context_.algorithm = *std::move(client);
  auto needs = training::TrainerSetup::Of(run, context_.spec, dataset.info().feature_type);
  const auto profile = backends_.ProfileOf(needs);
  Check(profile.status(), "back end");
  profile_ = *profile;
  for (Trainer& trainer : trainers_) {
    trainer.executor.Post([this, &trainer] {
      auto lane = worker::Lane::Make(context_, dataset_, trainer.work);
      Check(lane.status(), "lane");
      trainer.lane.emplace(*std::move(lane));
    });
  }
}

std::shared_ptr<worker::PhaseContext> Training::Open(const fleet::TrainingLease& lease) const {
  auto phase = std::make_shared<worker::PhaseContext>();
  phase->round = lease.round;
  phase->phase = lease.phase;
  phase->order = {.max_weight = lease.max_weight,
                  .total_weight = lease.total_weight,
                  .max_multiplicity = lease.max_multiplicity,
                  .total_multiplicity = lease.total_multiplicity};
  phase->local = training::RoundLocal(context_.run, lease.round);
  phase->broadcast = lease.broadcast;
  return phase;
}

void Training::ReadBroadcast(worker::PhaseContext& phase) const {
  const std::vector<LayoutPtr> layouts = algorithms::DownLayouts(context_.schema, phase.phase);
  std::vector<ConstVectorView> vectors;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto one =
        fleet::DecodeVectors(phase.broadcast.channels[i].bytes->bytes(), {&layouts[i], 1});
    Check(one.status(), "broadcast");
    vectors.push_back(one->front());
  }
  phase.vectors = algorithms::ParallelToDown(context_.schema, phase.phase, vectors);
}

fleet::Part Training::Train(const worker::PhaseContext& phase,
                            const std::vector<fleet::Assignment>& assignments, size_t device) {
  std::promise<fleet::Part> done;
  std::future<fleet::Part> trained = done.get_future();
  Trainer& trainer = trainers_[device % kTrainers];
  trainer.executor.Post([&phase, &assignments, &trainer, device, done = std::move(done)]() mutable {
    for (fleet::Assignment assignment : assignments) {
      assignment.place = device;  // the dataset here is everybody's
      const worker::LeasedClient client{assignment, SteadyClock().Now()};
      Check(trainer.lane->Train(phase, /*first_slot=*/0, {&client, 1}), "training");
    }
    worker::LaneResult result = trainer.lane->TakeResult();
    fleet::Part part;
    part.round = phase.round;
    part.phase = phase.phase;
    part.broadcast = phase.broadcast.name;
    part.included = std::move(result.included);
    part.left_out = std::move(result.left_out);
    if (!part.included.empty()) part.sums = fleet::Blob::Of(result.sum->Encode());
    done.set_value(std::move(part));
  });
  return trained.get();
}

}  // namespace macaw::bench
