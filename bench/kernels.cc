// A client's local steps, fused beside eager, on one thread: microseconds a step with all that
// belongs to it (order, gather, forward, loss, backward, update), GFLOP/s, and the share of the
// processor's multiply-add peak.
//
//   bench_kernels [MODEL [INSTRUCTION SET]]
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/fma_peak.h"
#include "bench/frame.h"
#include "core/random.h"
#include "core/vector.h"
#include "models/spec.h"
#include "training/api/trainer.h"
#include "training/fused/fused_trainer.h"
#include "training/torch/torch_backend.h"

namespace macaw::bench {
namespace {

using training::LocalTrainer;
using training::TrainerSetup;
using training::fused::Isa;

struct Job {
  const char* name;
  const char* model;
  std::vector<std::string> layers;  // where the model is "layers"
  std::vector<int64_t> input;
  uint32_t rows, batch;
};

std::vector<Job> Jobs() {
  return {
      {"logistic", "logistic", {}, {60}, 280, 10},
      {"mlp", "layers", {"linear 200", "relu", "linear 200", "relu", "linear 10"}, {784}, 200, 10},
      {"mlp-64",
       "layers",
       {"linear 200", "relu", "linear 200", "relu", "linear 10"},
       {784},
       640,
       64},
      {"lenet5", "lenet5", {}, {1, 28, 28}, 60, 20},
      {"cnn", "cnn", {}, {1, 28, 28}, 60, 20},
      {"simple_cnn", "simple_cnn", {}, {1, 28, 28}, 60, 20}};
}

// Of a step: forward, and backward by the weights and (but for the first layer) the inputs.
double FlopsOf(const models::ModelSpec& spec, uint32_t batch) {
  double macs = 0;
  bool first = true;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    double layer = 0;
    if (const auto* linear = std::get_if<models::Linear>(&spec.layers[i])) {
      layer = static_cast<double>(linear->in * linear->out);
    } else if (const auto* conv = std::get_if<models::Conv2d>(&spec.layers[i])) {
      layer = static_cast<double>(conv->in * conv->out * conv->kernel * conv->kernel *
                                  spec.shapes[i][1] * spec.shapes[i][2]);
    }
    macs += (first ? 2 : 3) * layer;
    first = first && layer == 0;
  }
  return 2 * macs * batch;
}

class Client {
 public:
  explicit Client(const Job& job) : labels_(job.rows) {
    ModelConfig model;
    model.name = job.model;
    model.layers = job.layers;
    model.input_shape = job.input;
    model.classes = 10;
    absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(model, DType::kF32);
    setup_.spec = *std::move(spec);
    setup_.local.batch_size = job.batch;
    setup_.local.lr = 0.01;
    size_t width = 1;
    for (const int64_t extent : job.input) width *= static_cast<size_t>(extent);
    features_ = AlignedBuffer(job.rows * width * sizeof(float));
    RandomStream stream({.seed = 1});
    stream.FillNormal(features_.As<float>());
    for (int32_t& label : labels_) label = static_cast<int32_t>(stream.Below(10));
    start_ = models::InitialModel(setup_.spec, 1);
    data::Rows& rows = task_.train;
    rows.block.features = features_.bytes().data();
    rows.block.row_bytes = width * sizeof(float);
    rows.block.classes = labels_.data();
    rows.block.count = job.rows;
    training::Stage stage;
    stage.start = ConstVectorView(start_.view());
    stage.local = setup_.local;
    plan_.stages.push_back(std::move(stage));
  }

  const TrainerSetup& setup() const { return setup_; }

  // Seconds a step.
  double Time(LocalTrainer& trainer) const {
    uint64_t steps = 0;
    const double seconds = Shortest([&] { steps = trainer.Run(plan_, task_)->at(0).steps; });
    return seconds / static_cast<double>(steps);
  }

 private:
  TrainerSetup setup_;
  AlignedBuffer features_;
  std::vector<int32_t> labels_;
  FlatVector start_;
  training::ClientTask task_;
  training::LocalPlan plan_;
};

int Main(const std::string& model, const std::string& wanted) {
  std::printf("%-12s %-9s %12s %9s %6s %12s %7s\n", "", "", "fused", "GFLOP/s", "peak", "eager",
              "ratio");
  for (const Job& job : Jobs()) {
    if (!model.empty() && model != job.name) continue;
    const Client client(job);
    const double gflop = 1e-9 * FlopsOf(client.setup().spec, job.batch);
    const auto eager = training::TorchBackend().MakeTrainer(client.setup());
    if (!eager.ok()) continue;
    const double eager_time = client.Time(**eager);
    for (const Isa isa : training::fused::SupportedIsas()) {
      const std::string name(training::fused::Name(isa));
      if (!wanted.empty() && wanted != name) continue;
      const auto fused = training::fused::FusedTrainer::Make(client.setup(), isa);
      if (!fused.ok()) {
        std::printf("%-12s %s\n", job.name, std::string(fused.status().message()).c_str());
        break;
      }
      const double time = client.Time(**fused);
      std::printf("%-12s %-9s %9.2f us %9.1f %5.0f%% %9.2f us %6.1fx\n", job.name, name.c_str(),
                  1e6 * time, gflop / time, 100 * gflop / time / MeasureFmaPeak(isa),
                  1e6 * eager_time, eager_time / time);
    }
  }
  return 0;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  macaw::bench::PrintHeading(argc, argv);
  return macaw::bench::Main(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
}
