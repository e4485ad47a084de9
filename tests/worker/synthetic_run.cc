#include "tests/worker/synthetic_run.h"

#include <gtest/gtest.h>

#include "algorithms/builtin.h"
#include "data/options.h"
#include "models/spec.h"

namespace macaw::worker::fixtures {

std::unique_ptr<data::Dataset> SyntheticClients() {
  data::DataOptions options{.source = "synthetic", .seed = 3, .synthetic = {.clients = 12}};
  options.synthetic.max_size = 80;
  auto dataset = data::OpenDataset(options, {});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

RunPlan SyntheticRun(const data::Dataset& dataset, uint32_t rounds) {
  const data::DatasetInfo& info = dataset.info();
  RunPlan run;
  run.name = "worker test";
  run.task = TaskKind::kClassification;
  run.seed = 5;
  run.rounds = rounds;
  run.clients = info.clients;
  run.train_examples = info.train_examples;
  run.transform = info.transform;
  run.model = {.name = "logistic", .input_shape = info.input_shape, .classes = info.classes};
  run.local.lr = 0.05;
  run.cohort = {.size = 6, .seed = 1};
  run.evaluation = {.every = 2, .chunk = 20, .clients = true};
  return run;
}

server::Options OptionsOf(RunPlan run, const std::string& folder) {
  server::Options options;
  options.run = std::move(run);
  options.run_dir = folder;
  return options;
}

const algorithms::Registry& Registry() {
  static const algorithms::Registry* const registry = [] {
    auto* made = new algorithms::Registry();
    made->AddBuiltin(algorithms::BuiltinAlgorithms());
    return made;
  }();
  return *registry;
}

training::Backends& OnlyFused() {
  static auto* const backends = new training::Backends("");
  return *backends;
}

std::unique_ptr<server::Coordinator> StartServer(server::Options options,
                                                 const algorithms::Registry& registry) {
  const auto spec = models::BuildSpec(options.run.model, options.run.dtype);
  EXPECT_TRUE(spec.ok()) << spec.status();
  auto coordinator = server::Coordinator::Start(std::move(options),
                                                models::InitialModel(*spec, /*seed=*/1), registry);
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  return coordinator.ok() ? *std::move(coordinator) : nullptr;
}

}  // namespace macaw::worker::fixtures
