#include "bench/gpu/clients.h"

#include <span>
#include <utility>

#include "core/random.h"
#include "models/spec.h"

namespace macaw::bench {

std::vector<Job> Jobs() {
  return {
      {"logistic", "logistic", {}, {60}, 200, 10},
      {"mlp", "layers", {"linear 200", "relu", "linear 200", "relu", "linear 10"}, {784}, 200, 10},
      {"lenet5", "lenet5", {}, {1, 28, 28}, 200, 20},
      {"cnn", "cnn", {}, {1, 28, 28}, 200, 20},
      {"simple_cnn", "simple_cnn", {}, {3, 32, 32}, 200, 10},
      {"resnet18_gn", "resnet18_gn", {}, {3, 32, 32}, 128, 64, 128}};
}

Clients::Clients(const Job& job, const std::vector<uint32_t>& rows) {
  ModelConfig model;
  model.name = job.model;
  model.layers = job.layers;
  model.input_shape = job.input;
  model.classes = 10;
  setup_.spec = *models::BuildSpec(model, DType::kF32);
  setup_.local.batch_size = job.batch;
  setup_.local.lr = 0.01;
  setup_.local.shuffle = job.shuffle;
  size_t width = 1;
  for (const int64_t extent : job.input) width *= static_cast<size_t>(extent);
  const bool image = job.input.size() == 3;
  if (image) {
    setup_.feature_type = data::FeatureType::kU8;
    setup_.transform.scale = 1.0 / 255;
  }
  const size_t row_bytes = width * data::SizeOf(setup_.feature_type);
  features_ = AlignedBuffer(kDifferent * job.rows * row_bytes);
  labels_.resize(kDifferent * job.rows);
  RandomStream stream({.seed = 1});
  if (image) {
    for (std::byte& pixel : features_.bytes()) pixel = static_cast<std::byte>(stream.Below(256));
  } else {
    stream.FillNormal(features_.As<float>());
  }
  for (int32_t& label : labels_) label = static_cast<int32_t>(stream.Below(10));
  start_ = models::InitialModel(setup_.spec, 1);
  training::Stage stage;
  stage.start = ConstVectorView(start_.view());
  stage.local = setup_.local;
  plan_.stages.push_back(std::move(stage));
  tasks_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t at = i % kDifferent * job.rows;
    tasks_[i].client = ClientId(i);
    data::ExampleBlock& block = tasks_[i].train.block;
    block.type = setup_.feature_type;
    block.features = features_.bytes().data() + at * row_bytes;
    block.row_bytes = row_bytes;
    block.classes = labels_.data() + at;
    block.count = rows[i];
  }
}

absl::StatusOr<uint64_t> Clients::Train(training::LocalTrainer& trainer, size_t count) const {
  std::vector<training::Turn> turns;
  for (size_t i = 0; i < count; ++i) turns.push_back({&plan_, &tasks_[i]});
  uint64_t steps = 0;
  absl::Status status;
  for (size_t at = 0; at < turns.size();) {
    for (const training::TurnOutcome& done : trainer.RunMany(std::span(turns).subspan(at))) {
      ++at;
      status.Update(done.status());
      if (done.ok()) steps += done->front().steps;
    }
  }
  if (!status.ok()) return status;
  return steps;
}

}  // namespace macaw::bench
