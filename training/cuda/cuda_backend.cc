#include "training/cuda/cuda_backend.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "aggregation/cuda/sum_kernels.h"
#include "core/status.h"
#include "device/cuda/cuda_device.h"
#include "training/cuda/device_names.h"
#include "training/cuda/train_clients.h"
#include "training/device/device_trainer.h"
#ifdef MACAW_HAVE_NCCL
#include "aggregation/cuda/nccl_api.h"
#endif

namespace macaw::training {
namespace {

// Trainers of one device: while one waits for it, another one prepares its clients.
constexpr uint32_t kLanesOfDevice = 2;

std::string Gibibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
}

std::string NcclText() {
#ifdef MACAW_HAVE_NCCL
  const absl::StatusOr<aggregation::NcclApi> api = aggregation::LoadNccl();
  if (api.ok()) return absl::StrCat("NCCL ", aggregation::NcclVersionText(api->version));
  return "no NCCL (only several GPUs use it)";
#else
  return "built without NCCL";
#endif
}

class Cuda final : public Backend {
 public:
  std::string name() const override { return "cuda"; }

  absl::Status Supports(const TrainerSetup& setup) const override {
    return DeviceTrainer::Supports(setup);
  }

  // A kernel is one source for every processor, without a library's products, exponentials or random
  // numbers, and with multiply-adds where it says so. So the trainer's version decides the bits, not
  // the driver or CUDA; the capability is the part that nvcc compiled for.
  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> all, device::ListCudaDevices());
    MACAW_ASSIGN_OR_RETURN(const std::vector<int> chosen, Choose(setup, all));
    std::set<std::string> capabilities;
    for (const int index : chosen)
      capabilities.insert(absl::StrCat("sm ", all[static_cast<size_t>(index)].capability));
    NumericProfile profile;
    profile.trainer = name();
    profile.instruction_set = absl::StrJoin(capabilities, ", ");
    profile.libraries = absl::StrCat("macaw-device ", DeviceTrainer::kVersion);
    return profile;
  }

  absl::StatusOr<uint32_t> LanesFor(const TrainerSetup& setup, uint32_t slots) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> all, device::ListCudaDevices());
    MACAW_ASSIGN_OR_RETURN(const std::vector<int> chosen, Choose(setup, all));
    return std::min(slots, kLanesOfDevice * static_cast<uint32_t>(chosen.size()));
  }

  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> all, device::ListCudaDevices());
    MACAW_ASSIGN_OR_RETURN(const std::vector<int> chosen, Choose(setup, all));
    MACAW_ASSIGN_OR_RETURN(device::Device* const device, Open(chosen[setup.lane % chosen.size()]));
    return DeviceTrainer::Make(setup, *device);
  }

  std::string Report() const override {
    const absl::StatusOr<std::vector<device::DeviceInfo>> all = device::ListCudaDevices();
    if (!all.ok()) return std::string(all.status().message());
    std::vector<std::string> lines;
    for (size_t i = 0; i < all->size(); ++i) {
      const device::DeviceInfo& info = (*all)[i];
      std::string free = "unknown";
      if (const auto device = Open(static_cast<int>(i)); device.ok()) {
        const absl::StatusOr<uint64_t> bytes = (*device)->FreeMemory();
        if (bytes.ok()) free = Gibibytes(*bytes);
      }
      lines.push_back(absl::StrCat("cuda:", i, " ", info.name, " (capability ", info.capability,
                                   ", ", Gibibytes(info.memory), ", ", free, " free)"));
    }
    lines.push_back(all->front().driver);
    lines.push_back(NcclText());
    return absl::StrJoin(lines, "; ");
  }

 private:
  static absl::StatusOr<std::vector<int>> Choose(const TrainerSetup& setup,
                                                 const std::vector<device::DeviceInfo>& all) {
    return ChooseGpus(setup.backend.devices, static_cast<int>(all.size()));
  }

  absl::StatusOr<device::Device*> Open(int index) const ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    std::unique_ptr<device::Device>& device = devices_[index];
    if (device == nullptr) {
      std::vector<device::CudaKernel> kernels = TrainerCudaKernels();
      std::ranges::copy(aggregation::SumCudaKernels(), std::back_inserter(kernels));
      MACAW_ASSIGN_OR_RETURN(device, device::MakeCudaDevice(index, std::move(kernels)));
    }
    return device.get();
  }

  mutable absl::Mutex mutex_;
  mutable std::map<int, std::unique_ptr<device::Device>> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const Backend& CudaBackend() {
  static const Cuda* const backend = new Cuda;  // devices outlive every trainer
  return *backend;
}

}  // namespace macaw::training
