// What a GPU does here: local steps a second by the clients that are trained at once, beside one
// core with the fused kernels; the exact fold; registers and spills of each kernel.
//
//   bench_gpu [--out FILE] [--fake] [--quick] [--device N]
//
// --fake: on the device of the tests, to try the program where there is no GPU. FILE gets JSON.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "aggregation/cuda/sum_kernels.h"
#include "aggregation/device_sum.h"
#include "core/random.h"
#include "core/status.h"
#include "device/cuda/cuda_device.h"
#include "models/spec.h"
#include "testing/fake_device.h"
#include "training/api/trainer.h"
#include "training/cuda/train_clients.h"
#include "training/device/device_trainer.h"
#include "training/device/kernels.h"
#include "training/fused/fused_trainer.h"

namespace macaw::bench {
namespace {

using nlohmann::json;
using training::LocalTrainer;

struct Arguments {
  std::string out;
  bool fake = false, quick = false;
  int device = 0;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Figure {
  double median = 0, lowest = 0, highest = 0;  // seconds
};

// After one run that is not counted: at least three, and so many as take `seconds`.
template <typename F>
Figure Time(double seconds, const F& run) {
  run();
  std::vector<double> times;
  for (const double end = Now() + seconds; times.size() < 3 || Now() < end;) {
    const double begin = Now();
    run();
    times.push_back(Now() - begin);
    if (times.size() == 1000) break;
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times.front(), times.back()};
}

struct Job {
  const char* name;
  const char* model;
  std::vector<std::string> layers;  // where the model is "layers"
  std::vector<int64_t> input;
  uint32_t rows, batch;
};

std::vector<Job> Jobs() {
  return {
      {"logistic", "logistic", {}, {60}, 200, 10},
      {"mlp", "layers", {"linear 200", "relu", "linear 200", "relu", "linear 10"}, {784}, 200, 10},
      {"lenet5", "lenet5", {}, {1, 28, 28}, 200, 20},
      {"cnn", "cnn", {}, {1, 28, 28}, 200, 20},
      {"simple_cnn", "simple_cnn", {}, {3, 32, 32}, 200, 10}};
}

// Clients of one job. Image rows are bytes, as data sets store them.
class Clients {
 public:
  Clients(const Job& job, size_t count) {
    ModelConfig model;
    model.name = job.model;
    model.layers = job.layers;
    model.input_shape = job.input;
    model.classes = 10;
    setup_.spec = *models::BuildSpec(model, DType::kF32);
    setup_.local.batch_size = job.batch;
    setup_.local.lr = 0.01;
    size_t width = 1;
    for (const int64_t extent : job.input) width *= static_cast<size_t>(extent);
    const bool image = job.input.size() == 3;
    if (image) {
      setup_.feature_type = data::FeatureType::kU8;
      setup_.transform.scale = 1.0 / 255;
    }
    const size_t row_bytes = width * data::SizeOf(setup_.feature_type);
    constexpr size_t kDifferent = 64;  // clients with rows of their own; the others share these
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
    tasks_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i % kDifferent * job.rows;
      tasks_[i].client = ClientId(i);
      data::ExampleBlock& block = tasks_[i].train.block;
      block.type = setup_.feature_type;
      block.features = features_.bytes().data() + at * row_bytes;
      block.row_bytes = row_bytes;
      block.classes = labels_.data() + at;
      block.count = job.rows;
    }
  }

  const training::TrainerSetup& setup() const { return setup_; }

  // Trains the first `count` clients; returns their steps.
  absl::StatusOr<uint64_t> Train(LocalTrainer& trainer, size_t count) const {
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

 private:
  training::TrainerSetup setup_;
  AlignedBuffer features_;
  std::vector<int32_t> labels_;
  FlatVector start_;
  training::LocalPlan plan_;
  std::vector<training::ClientTask> tasks_;
};

absl::StatusOr<json> MeasureTraining(device::Device& device, const Arguments& arguments) {
  json rows = json::array();
  const double seconds = arguments.quick ? 0.02 : 1;
  const std::vector<size_t> counts =
      arguments.quick ? std::vector<size_t>{1, 4} : std::vector<size_t>{1, 8, 32, 128, 512, 1024};
  std::printf("%-12s %8s %12s %12s %10s %9s\n", "model", "clients", "steps/s", "us a step",
              "one core", "ratio");
  for (Job job : Jobs()) {
    if (arguments.quick) {
      if (absl::string_view(job.name) == "cnn") break;  // minutes on the device of the tests
      job.rows = 2 * job.batch;
    }
    const Clients clients(job, counts.back());
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<LocalTrainer> core,
                           training::fused::FusedTrainer::Make(
                               clients.setup(), training::fused::SupportedIsas().back()));
    uint64_t core_steps = 0;
    absl::Status status;
    const Figure one = Time(seconds, [&] {
      const absl::StatusOr<uint64_t> done = clients.Train(*core, 1);
      status.Update(done.status());
      core_steps = done.value_or(0);
    });
    MACAW_RETURN_IF_ERROR(status);
    const double core_rate = static_cast<double>(core_steps) / one.median;
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<training::DeviceTrainer> trainer,
                           training::DeviceTrainer::Make(clients.setup(), device));
    for (const size_t count : counts) {
      uint64_t steps = 0;
      const Figure figure = Time(seconds, [&] {
        const absl::StatusOr<uint64_t> done = clients.Train(*trainer, count);
        status.Update(done.status());
        steps = done.value_or(0);
      });
      MACAW_RETURN_IF_ERROR(Annotate(status, job.name));
      const double rate = static_cast<double>(steps) / figure.median;
      std::printf("%-12s %8zu %12.0f %12.2f %10.0f %8.1fx\n", job.name, count, rate, 1e6 / rate,
                  core_rate, rate / core_rate);
      std::fflush(stdout);
      rows.push_back({{"model", job.name},
                      {"batch", job.batch},
                      {"rows", job.rows},
                      {"parameters", clients.setup().spec.layout->size()},
                      {"clients", count},
                      {"turns_at_once", trainer->turns_at_once()},
                      {"steps", steps},
                      {"seconds", {figure.median, figure.lowest, figure.highest}},
                      {"steps_per_s", rate},
                      {"one_core_steps_per_s", core_rate},
                      {"ratio", rate / core_rate}});
    }
  }
  return rows;
}

// Clients' vectors that are on the device already, added up there; beside one core's ExactSum::Add.
absl::StatusOr<json> MeasureFold(device::Device& device, const Arguments& arguments) {
  json rows = json::array();
  const double seconds = arguments.quick ? 0.02 : 0.5;
  std::printf("\n%-12s %8s %12s %12s %10s %9s\n", "parameters", "clients", "us", "GB/s", "one core",
              "ratio");
  for (const size_t count : {size_t{10000}, size_t{1000000}, size_t{10000000}}) {
    if (arguments.quick && count > 10000) break;
    const LayoutPtr layout =
        ParameterLayout::Scalars("w", static_cast<int64_t>(count), DType::kF32);
    const std::vector<aggregation::ChannelSpec> channels = {{.name = "delta", .layout = layout}};
    const aggregation::GridOrder order{100, 1e12, 1, uint64_t{1} << 32};
    FlatVector vector(layout);
    RandomStream random({.seed = 1});
    for (float& value : vector.As<float>()) value = static_cast<float>(random.Uniform() - 0.5);
    const ConstVectorView view = vector.view();
    MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum host,
                           aggregation::ExactSum::Make(channels, order));
    absl::Status status;
    const Figure core = Time(seconds, [&] {
      status.Update(host.Add({ClientId(1), 37, 1, std::span(&view, 1)}));
    });
    for (const size_t clients : {size_t{1}, size_t{16}, size_t{128}, size_t{1024}}) {
      if (clients * count > (arguments.quick ? size_t{200000} : size_t{2000000000})) break;
      MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<device::Queue> queue, device.MakeQueue());
      MACAW_ASSIGN_OR_RETURN(const device::Memory memory,
                             device.Allocate(clients * count * sizeof(float)));
      for (size_t i = 0; i < clients; ++i)
        queue->CopyIn(memory.data() + i * view.bytes.size(), view.bytes);
      MACAW_RETURN_IF_ERROR(queue->Wait());
      MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<aggregation::DeviceSum> sum,
                             aggregation::DeviceSum::Make(device, *queue, channels, order,
                                                          static_cast<uint32_t>(clients)));
      std::vector<aggregation::DeviceContribution::Value> values(clients);
      std::vector<aggregation::DeviceContribution> all(clients);
      for (size_t i = 0; i < clients; ++i) {
        values[i].on_device = memory.As<float>() + i * count;
        all[i].client = ClientId(i);
        all[i].weight = 37;
        all[i].values = {&values[i], 1};
      }
      const Figure figure = Time(seconds, [&] {
        status.Update(sum->Add(all));
        const absl::StatusOr<std::vector<absl::Status>> answers = sum->Settle();
        status.Update(answers.status());
        if (answers.ok()) status.Update(answers->front());
      });
      MACAW_RETURN_IF_ERROR(status);
      // The vectors are read twice, the sum is read and written.
      const double bytes = static_cast<double>(count) * (8.0 * static_cast<double>(clients) + 16);
      const double ratio = core.median * static_cast<double>(clients) / figure.median;
      std::printf("%-12zu %8zu %12.1f %12.1f %10.1f %8.1fx\n", count, clients, 1e6 * figure.median,
                  1e-9 * bytes / figure.median, 1e6 * core.median, ratio);
      std::fflush(stdout);
      rows.push_back({{"parameters", count},
                      {"clients", clients},
                      {"seconds", {figure.median, figure.lowest, figure.highest}},
                      {"bytes_per_s", bytes / figure.median},
                      {"one_core_seconds_a_client", core.median},
                      {"ratio", ratio}});
    }
  }
  return rows;
}

absl::StatusOr<std::unique_ptr<device::Device>> Open(const Arguments& arguments, json& report) {
  if (arguments.fake) {
    std::vector<device::HostKernelEntry> kernels = aggregation::SumHostKernels();
    std::ranges::copy(training::DeviceTrainerKernels(), std::back_inserter(kernels));
    return std::make_unique<testing_support::FakeDevice>(std::move(kernels));
  }
  std::vector<device::CudaKernel> kernels = training::TrainerCudaKernels();
  std::ranges::copy(aggregation::SumCudaKernels(), std::back_inserter(kernels));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device,
                         device::MakeCudaDevice(arguments.device, kernels));
  MACAW_ASSIGN_OR_RETURN(const std::vector<device::CudaKernelUse> uses,
                         device::CudaKernelUses(arguments.device, kernels));
  for (const device::CudaKernelUse& use : uses) {
    std::printf("%-32s %3d registers, %4zu bytes local, %5zu bytes shared, %4d threads\n",
                use.name.c_str(), use.registers, use.local, use.shared, use.most_threads);
    report["kernels"].push_back({{"name", use.name},
                                 {"registers", use.registers},
                                 {"local_bytes", use.local},
                                 {"shared_bytes", use.shared},
                                 {"most_threads", use.most_threads}});
  }
  return device;
}

absl::Status Run(const Arguments& arguments) {
  json report;
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, Open(arguments, report));
  const device::DeviceInfo& info = device->info();
  std::printf("\n%s, capability %s, %.1f GiB, %u processors; %s\n\n", info.name.c_str(),
              info.capability.c_str(), static_cast<double>(info.memory) / (1 << 30),
              info.processors, info.driver.c_str());
  report["device"] = {{"name", info.name},
                      {"driver", info.driver},
                      {"capability", info.capability},
                      {"memory", info.memory},
                      {"processors", info.processors}};
  MACAW_ASSIGN_OR_RETURN(const uint64_t free_before, device->FreeMemory());
  MACAW_ASSIGN_OR_RETURN(report["training"], MeasureTraining(*device, arguments));
  MACAW_ASSIGN_OR_RETURN(report["fold"], MeasureFold(*device, arguments));
  MACAW_ASSIGN_OR_RETURN(const uint64_t free_after, device->FreeMemory());
  report["free_memory"] = {free_before, free_after};
  if (arguments.out.empty()) return absl::OkStatus();
  std::ofstream(arguments.out) << report.dump(1) << '\n';
  return absl::OkStatus();
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  macaw::bench::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--fake") {
      arguments.fake = true;
    } else if (name == "--quick") {
      arguments.quick = true;
    } else if (name == "--out" && i + 1 < argc) {
      arguments.out = argv[++i];
    } else if (name == "--device" && i + 1 < argc) {
      arguments.device = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_gpu [--out FILE] [--fake] [--quick] [--device N]\n");
      return 2;
    }
  }
  const absl::Status status = macaw::bench::Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_gpu: %s\n", std::string(status.message()).c_str());
  return 1;
}
