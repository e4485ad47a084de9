#include "training/cuda/cuda_backend.h"

#include <algorithm>
#include <iterator>
#include <map>
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
#include "training/device/device_backend.h"
#ifdef MACAW_HAVE_NCCL
#include "device/cuda/nccl_api.h"
#include "device/cuda/nccl_collective.h"
#endif

namespace macaw::training {
namespace {

std::string Gibibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
}

std::string NcclText() {
#ifdef MACAW_HAVE_NCCL
  const absl::StatusOr<device::NcclApi> api = device::LoadNccl();
  if (api.ok()) return absl::StrCat("NCCL ", device::NcclVersionText(api->version));
  return "no NCCL (only several GPUs use it)";
#else
  return "built without NCCL";
#endif
}

class Cuda final : public DeviceBackend {
 public:
  std::string name() const override { return "cuda"; }

  std::string Report() const override {
    const absl::StatusOr<std::vector<device::DeviceInfo>> all = device::ListCudaDevices();
    if (!all.ok()) return std::string(all.status().message());
    std::vector<std::string> lines;
    for (size_t i = 0; i < all->size(); ++i) {
      const device::DeviceInfo& info = (*all)[i];
      std::string state;  // its free memory, or why it cannot be used
      if (const auto device = Open(static_cast<int>(i)); !device.ok()) {
        state = std::string(device.status().message());
      } else if (const auto bytes = (*device)->FreeMemory(); bytes.ok()) {
        state = absl::StrCat(Gibibytes(*bytes), " free");
      } else {
        state = std::string(bytes.status().message());
      }
      lines.push_back(absl::StrCat("cuda:", i, " ", info.name, " (capability ", info.capability,
                                   ", ", Gibibytes(info.memory), ", ", state, ")"));
    }
    lines.push_back(all->front().driver);
    lines.push_back(NcclText());
    return absl::StrJoin(lines, "; ");
  }

#ifdef MACAW_HAVE_NCCL
  absl::StatusOr<std::unique_ptr<device::Collective>> MakeCollective(
      std::vector<device::Device*> devices) const override {
    std::vector<device::NcclPeer> peers;
    for (device::Device* const device : devices) peers.push_back({device, IndexOf(device)});
    return device::MakeGpuCollective(std::move(peers));
  }
#endif

 protected:
  absl::StatusOr<size_t> CountDevices(const std::vector<std::string>& names) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<int> chosen, Chosen(names));
    return chosen.size();
  }

  absl::StatusOr<std::vector<device::Device*>> Devices(
      const std::vector<std::string>& names) const override {
    MACAW_ASSIGN_OR_RETURN(const std::vector<int> chosen, Chosen(names));
    std::vector<device::Device*> devices;
    for (const int index : chosen) {
      MACAW_ASSIGN_OR_RETURN(device::Device* const device, Open(index));
      devices.push_back(device);
    }
    return devices;
  }

 private:
  // The numbers of the GPUs. Opens none.
  static absl::StatusOr<std::vector<int>> Chosen(const std::vector<std::string>& names) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> all, device::ListCudaDevices());
    return ChooseGpus(names, static_cast<int>(all.size()));
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

  // Of one that Open has opened.
  int IndexOf(const device::Device* device) const ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    return std::ranges::find_if(devices_,
                                [&](const auto& opened) { return opened.second.get() == device; })
        ->first;
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
