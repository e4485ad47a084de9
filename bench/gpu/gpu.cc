// What a GPU does here: local steps a second by the clients that are trained at once, beside one
// core with the fused kernels; the exact fold; registers and spills of each kernel.
//
//   bench_gpu [--out FILE] [--fake] [--quick] [--device N] [--minutes N]
//             [--jobs A,B] [--clients N,N]
//
// --fake: on the device of the tests, to try the program where there is no GPU. FILE gets JSON,
// again after each job. --minutes: no measurement of training begins later (default 20); each job
// may use its share of what is left. --jobs, --clients: only these.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "aggregation/cuda/sum_kernels.h"
#include "aggregation/device_sum.h"
#include "bench/gpu/clients.h"
#include "core/random.h"
#include "core/status.h"
#include "device/cuda/cuda_device.h"
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
  double minutes = 20;
  std::vector<std::string> jobs;  // empty: all
  std::vector<size_t> clients = {1, 8, 32, 128, 512, 1024};
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970, so that another process can say what the GPU did meanwhile.
double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Figure {
  double median = 0, lowest = 0, highest = 0;  // seconds
  double began = 0, ended = 0;                 // UnixTime of the runs that count
};

// After one run that is not counted: so many as take `seconds`, but at least three, or two if the
// first took more than two seconds.
template <typename F>
Figure Time(double seconds, const F& run) {
  const double start = Now();
  run();
  const size_t least = Now() - start > 2 ? 2 : 3;
  Figure figure{.began = UnixTime()};
  std::vector<double> times;
  for (const double end = Now() + seconds; times.size() < least || Now() < end;) {
    const double begin = Now();
    run();
    times.push_back(Now() - begin);
    if (times.size() == 10000) break;
  }
  figure.ended = UnixTime();
  std::ranges::sort(times);
  figure.median = times[times.size() / 2];
  figure.lowest = times.front();
  figure.highest = times.back();
  return figure;
}

void Save(const Arguments& arguments, const json& report) {
  if (!arguments.out.empty()) std::ofstream(arguments.out) << report.dump(1) << '\n';
}

// One core with the fused kernels: steps a second, or none where they do not have the model.
absl::StatusOr<std::optional<double>> OneCore(const Clients& clients, double seconds) {
  if (!training::fused::Supports(clients.setup()).ok()) return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<LocalTrainer> trainer,
                         training::fused::FusedTrainer::Make(
                             clients.setup(), training::fused::SupportedIsas().front()));
  uint64_t steps = 0;
  absl::Status status;
  const Figure figure = Time(seconds, [&] {
    const absl::StatusOr<uint64_t> done = clients.Train(*trainer, 1);
    status.Update(done.status());
    steps = done.value_or(0);
  });
  MACAW_RETURN_IF_ERROR(status);
  return static_cast<double>(steps) / figure.median;
}

// Adds rows to `rows` until `deadline`; notes what was left out.
absl::Status MeasureJob(const Job& job, device::Device& device, const Arguments& arguments,
                        double deadline, json& rows, json& left_out) {
  const double seconds = arguments.quick ? 0.02 : 2;
  const Clients clients(job, std::vector<uint32_t>(job.most_clients, job.rows));
  MACAW_ASSIGN_OR_RETURN(const std::optional<double> core, OneCore(clients, seconds));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<training::DeviceTrainer> trainer,
                         training::DeviceTrainer::Make(clients.setup(), device));
  absl::Status status;
  for (const size_t count : arguments.clients) {
    if (count > job.most_clients) break;
    if (Now() > deadline) {
      std::printf("%-12s %8zu no time left\n", job.name, count);
      left_out.push_back({{"model", job.name}, {"clients", count}});
      continue;
    }
    uint64_t steps = 0;
    const Figure figure = Time(seconds, [&] {
      const absl::StatusOr<uint64_t> done = clients.Train(*trainer, count);
      status.Update(done.status());
      steps = done.value_or(0);
    });
    MACAW_RETURN_IF_ERROR(Annotate(status, job.name));
    const double rate = static_cast<double>(steps) / figure.median;
    std::printf("%-12s %8zu %12.1f %12.2f %10.1f %8.1fx\n", job.name, count, rate, 1e6 / rate,
                core.value_or(0), core ? rate / *core : 0);
    std::fflush(stdout);
    rows.push_back({{"model", job.name},
                    {"batch", job.batch},
                    {"rows", job.rows},
                    {"parameters", clients.setup().spec.layout->count()},
                    {"clients", count},
                    {"turns_at_once", trainer->turns_at_once()},
                    {"steps", steps},
                    {"seconds", {figure.median, figure.lowest, figure.highest}},
                    {"window", {figure.began, figure.ended}},
                    {"steps_per_s", rate},
                    {"one_core_steps_per_s", core ? json(*core) : json()},
                    {"ratio", core ? json(rate / *core) : json()}});
  }
  return absl::OkStatus();
}

absl::Status MeasureTraining(device::Device& device, const Arguments& arguments, json& report) {
  std::vector<Job> jobs;
  for (Job& job : Jobs()) {
    const bool asked = std::ranges::find(arguments.jobs, job.name) != arguments.jobs.end();
    if (!asked && !arguments.jobs.empty()) continue;
    // On the device of the tests, convolutions of more than LeNet's size take minutes.
    if (!asked && arguments.quick && job.input.size() == 3 && job.input[0] == 3) continue;
    if (!asked && arguments.quick && absl::string_view(job.name) == "cnn") continue;
    if (arguments.quick) job.rows = 2 * job.batch;
    jobs.push_back(std::move(job));
  }
  if (jobs.empty())
    return absl::InvalidArgumentError("--jobs names no job of bench/gpu/clients.cc");
  std::printf("%-12s %8s %12s %12s %10s %9s\n", "model", "clients", "steps/s", "us a step",
              "one core", "ratio");
  json& rows = report["training"] = json::array();
  json& left_out = report["left_out"] = json::array();
  const double end = Now() + 60 * arguments.minutes;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const double share = (end - Now()) / static_cast<double>(jobs.size() - i);
    MACAW_RETURN_IF_ERROR(MeasureJob(jobs[i], device, arguments, Now() + share, rows, left_out));
    Save(arguments, report);
  }
  return absl::OkStatus();
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
  MACAW_RETURN_IF_ERROR(MeasureTraining(*device, arguments, report));
  MACAW_ASSIGN_OR_RETURN(report["fold"], MeasureFold(*device, arguments));
  MACAW_ASSIGN_OR_RETURN(const uint64_t free_after, device->FreeMemory());
  report["free_memory"] = {free_before, free_after};
  Save(arguments, report);
  return absl::OkStatus();
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  macaw::bench::Arguments arguments;
  std::vector<std::string> clients;
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
    } else if (name == "--minutes" && i + 1 < argc) {
      arguments.minutes = std::atof(argv[++i]);
    } else if (name == "--jobs" && i + 1 < argc) {
      arguments.jobs = absl::StrSplit(argv[++i], ',');
    } else if (name == "--clients" && i + 1 < argc) {
      clients = absl::StrSplit(argv[++i], ',');
    } else {
      std::fprintf(stderr,
                   "usage: bench_gpu [--out FILE] [--fake] [--quick] [--device N] [--minutes N] "
                   "[--jobs A,B] [--clients N,N]\n");
      return 2;
    }
  }
  if (clients.empty() && arguments.quick) clients = {"1", "4"};
  if (!clients.empty()) arguments.clients.clear();
  for (const std::string& text : clients) {
    size_t count = 0;
    if (!absl::SimpleAtoi(text, &count) || count == 0) {
      std::fprintf(stderr, "bench_gpu: --clients %s is not a list of numbers\n", text.c_str());
      return 2;
    }
    arguments.clients.push_back(count);
  }
  const absl::Status status = macaw::bench::Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_gpu: %s\n", std::string(status.message()).c_str());
  return 1;
}
