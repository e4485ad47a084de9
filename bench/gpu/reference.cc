// What a few clients of each job of bench_gpu learn, for the test of torch_steps.py: a file
// FOLDER/JOB.safetensors with the weights they start from, the rows and labels of each, in the
// order in which they are used, and the weights after one epoch.
//
//   bench_gpu_reference FOLDER
//
// The fused trainer makes them, where it has the model; else the device's trainer, on the device
// of the tests. Batches are small, because that one is slow.

#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/gpu/clients.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "testing/fake_device.h"
#include "training/device/device_trainer.h"
#include "training/device/kernels.h"
#include "training/fused/fused_trainer.h"

namespace macaw::bench {
namespace {

using Tensors = std::vector<TensorToWrite>;

std::vector<uint64_t> Shape(const std::vector<int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

void AddVector(const std::string& prefix, ConstVectorView vector, Tensors& tensors) {
  for (const LayoutEntry& entry : vector.layout->entries()) {
    const std::span<const float> values = vector.As<float>().subspan(entry.offset, entry.size);
    tensors.push_back(
        {absl::StrCat(prefix, entry.name), "F32", Shape(entry.shape), std::as_bytes(values)});
  }
}

void AddRows(const std::string& prefix, const Job& job, const data::ExampleBlock& block,
             Tensors& tensors) {
  std::vector<uint64_t> shape = Shape(job.input);
  shape.insert(shape.begin(), block.count);
  const std::span features(block.features, block.count * block.row_bytes);
  const bool bytes = block.type == data::FeatureType::kU8;
  tensors.push_back({prefix + "features", bytes ? "U8" : "F32", shape, features});
  const std::span labels(block.classes, block.count);
  tensors.push_back({prefix + "labels", "I32", {block.count}, std::as_bytes(labels)});
}

absl::Status Write(Job job, const std::string& folder) {
  std::map<std::string, std::string> about = {{"batch", absl::StrCat(job.batch)},
                                              {"rows", absl::StrCat(job.rows)},
                                              {"most_clients", absl::StrCat(job.most_clients)},
                                              {"input", absl::StrJoin(job.input, " ")}};
  const bool large = absl::string_view(job.name) == "resnet18_gn";
  job.batch = large ? 2 : 8;
  job.rows = 2 * job.batch;
  job.shuffle = false;
  // Two full batches; one and a part; one.
  std::vector<uint32_t> rows = {job.rows, job.batch + 1, job.batch};
  if (large) rows.erase(rows.begin());
  const Clients clients(job, rows);
  about["lr"] = absl::StrCat(clients.setup().local.lr);
  about["batch_here"] = absl::StrCat(job.batch);

  const std::span<const device::HostKernelEntry> kernels = training::DeviceTrainerKernels();
  testing_support::FakeDevice device({kernels.begin(), kernels.end()},
                                     {.memory = uint64_t{4} << 30});
  std::unique_ptr<training::LocalTrainer> trainer;
  const bool fused = training::fused::Supports(clients.setup()).ok();
  if (fused) {
    MACAW_ASSIGN_OR_RETURN(trainer, training::fused::FusedTrainer::Make(
                                        clients.setup(), training::fused::SupportedIsas().front()));
  } else {
    MACAW_ASSIGN_OR_RETURN(trainer, training::DeviceTrainer::Make(clients.setup(), device));
  }

  Tensors tensors;
  AddVector("start/", clients.start(), tensors);
  std::vector<FlatVector> ends;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string prefix = absl::StrCat("client", i, "/");
    AddRows(prefix, job, clients.task(i).train.block, tensors);
    const training::TurnOutcome done = trainer->Run(clients.plan(), clients.task(i));
    MACAW_RETURN_IF_ERROR(done.status());
    const ConstVectorView end = done->front().end;
    ends.push_back(FlatVector::CopyOf(end, clients.setup().spec.layout));
    AddVector(prefix + "end/", ends.back().view(), tensors);
  }
  std::printf("%s: %s\n", job.name, fused ? "fused" : "device");
  return WriteSafetensors(absl::StrCat(folder, "/", job.name, ".safetensors"), tensors, about);
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bench_gpu_reference FOLDER\n");
    return 2;
  }
  for (const macaw::bench::Job& job : macaw::bench::Jobs()) {
    if (const absl::Status status = macaw::bench::Write(job, argv[1]); !status.ok()) {
      std::fprintf(stderr, "bench_gpu_reference: %s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
}
