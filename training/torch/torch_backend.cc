#include "training/torch/torch_backend.h"

#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <gnu/libc-version.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/describe_script.h"
#include "models/one_thread.h"
#include "training/torch/device.h"
#include "training/torch/eager_trainer.h"
#include "training/torch/precision.h"

namespace macaw::training {
namespace {

// MKL and oneDNN also choose their kernels by the processor's manufacturer.
absl::string_view Maker() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return "intel";
  if (__builtin_cpu_is("amd")) return "amd";
#endif
  return "other";
}

// The processor's instructions for products in bfloat16, by which oneDNN chooses its kernels.
std::string Bfloat16Instructions() {
  std::ifstream cpus("/proc/cpuinfo");
  std::string line, found;
  while (std::getline(cpus, line) && !line.starts_with("flags")) {
  }
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    if (word == "avx512_bf16" || word == "amx_bf16") absl::StrAppend(&found, " ", word);
  }
  return found;
}

// GFLOP/s of LibTorch's matrix product in float32, on one thread: the best of several products.
double MeasureBlas() {
  models::UseOneThread();
  constexpr int64_t kSize = 768;
  const at::Tensor a = at::rand({kSize, kSize}), b = at::rand({kSize, kSize});
  at::Tensor product = at::mm(a, b);
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const TimePoint begin = SteadyClock().Now();
    at::mm_out(product, a, b);
    best =
        std::max(best, 2.0 * kSize * kSize * kSize / ToSeconds(SteadyClock().Now() - begin) / 1e9);
  }
  return best;
}

class Torch final : public Backend {
 public:
  std::string name() const override { return "torch"; }

  absl::Status Supports(const TrainerSetup& setup) const override {
    MACAW_RETURN_IF_ERROR(NamedDevices(setup.backend).status());
    return CheckPrecision(setup);
  }

  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, NamedDevices(setup.backend));
    MACAW_ASSIGN_OR_RETURN(std::string kernels, KernelsOf(devices));
    if (devices.empty() || devices.front().is_cpu()) {
      kernels = absl::StrCat(absl::AsciiStrToLower(at::get_cpu_capability()), " ", Maker());
      if (setup.local.precision == "bf16") absl::StrAppend(&kernels, Bfloat16Instructions());
    }
    return NumericProfile{
        .trainer = name(),
        .instruction_set = std::move(kernels),
        .libraries = absl::StrCat("libtorch ", TORCH_VERSION, ", glibc ", gnu_get_libc_version())};
  }

  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override {
    return EagerTrainer::Make(setup);
  }

  std::string Report() const override {
    const NumericProfile profile = *Profile({});
    const double gflops = MeasureBlas();
    return absl::StrFormat("%s, kernels for %s, matrix product %.0f GFLOP/s on one thread%s",
                           profile.libraries, profile.instruction_set, gflops,
                           gflops < 5 ? "; that is slow: is it using a reference BLAS?" : "");
  }

  absl::Status DescribeScript(const std::string& script, const std::string& out) const override {
    return models::DescribeScript(script, out);
  }
};

}  // namespace

const Backend& TorchBackend() {
  static const Torch backend = [] {
    KeepFreedMemory();  // LibTorch allocates and frees its activations in every step
    return Torch();
  }();
  return backend;
}

}  // namespace macaw::training
