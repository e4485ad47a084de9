#include "training/torch/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::training {
namespace {

// The folder of the LibTorch that this process has loaded.
std::string LibTorchFolder() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* into) {
        const std::filesystem::path file(library->dlpi_name);
        if (file.filename() != "libtorch_cpu.so") return 0;
        *static_cast<std::string*>(into) = file.parent_path().string();
        return 1;
      },
      &found);
  return found;
}

// LibTorch's kernels for GPUs are a library of their own, which nothing of ours links.
absl::Status LoadCuda() {
  static const absl::Status loaded = [] {
    if (at::hasCUDA()) return absl::OkStatus();
    const std::string folder = LibTorchFolder();
    // Beside the library that is loaded, or in LD_LIBRARY_PATH.
    for (const std::string& file :
         {absl::StrCat(folder, "/libtorch_cuda.so"), std::string("libtorch_cuda.so")}) {
      if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
    }
    const char* const why = ::dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("workers.devices: the LibTorch in ", folder, " has no kernels for GPUs (", why,
                     "): install PyTorch ", TORCH_VERSION,
                     " for CUDA, and name its folder torch/lib in LD_LIBRARY_PATH"));
  }();
  return loaded;
}

// Of several kernels that compute the same, always the same one.
void ChooseRepeatableKernels() {
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  // Where an operation has none that repeats its bits, it warns and goes on.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
}

absl::Status Open(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  if (device.is_cuda()) MACAW_RETURN_IF_ERROR(LoadCuda());
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    return absl::FailedPreconditionError(
        absl::StrCat("workers.devices: this LibTorch knows no device of the kind \"",
                     c10::DeviceTypeName(device.type(), /*lower_case=*/true), "\""));
  }
  try {
    at::globalContext().lazyInitDevice(device.type());
    const int count = c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
    const int index = device.has_index() ? device.index() : 0;
    if (index >= count) {
      return absl::FailedPreconditionError(absl::StrCat("workers.devices: there is no ",
                                                        device.str(), ": LibTorch sees ", count,
                                                        " devices of the kind"));
    }
  } catch (const c10::Error& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("workers.devices: ", device.str(), ": ", error.what_without_backtrace()));
  }
  ChooseRepeatableKernels();
  return absl::OkStatus();
}

// An attribute of a GPU, by the runtime that LibTorch brought; -1: it cannot be asked.
int AttributeOf(int device, int attribute) {
  using Ask = int (*)(int*, int, int);
  static const auto ask = reinterpret_cast<Ask>(::dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute"));
  int value = 0;
  return ask != nullptr && ask(&value, attribute, device) == 0 ? value : -1;
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> NamedDevices(const BackendChoice& choice) {
  std::vector<c10::Device> devices;
  if (choice.name != "torch") return devices;
  for (const std::string& name : choice.devices) {
    std::optional<c10::Device> device;
    try {
      device.emplace(name);
    } catch (const c10::Error&) {  // refused below
    }
    const bool odd = device.has_value() && (device->is_meta() || name.starts_with("cpu:"));
    if (!device.has_value() || odd) {
      return absl::InvalidArgumentError(
          absl::StrCat("workers.devices: \"", name,
                       "\" is no device that LibTorch trains on; one is \"cuda:0\" or \"cpu\""));
    }
    devices.push_back(*device);
  }
  return devices;
}

absl::StatusOr<c10::Device> OpenDevice(const TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, NamedDevices(setup.backend));
  // Slots count through the processes of a host.
  const size_t slot = size_t{setup.backend.program.first_slot} + setup.lane;
  const c10::Device device =
      devices.empty() ? c10::Device(c10::kCPU) : devices[slot % devices.size()];
  MACAW_RETURN_IF_ERROR(Open(device));
  return device;
}

std::optional<c10::Stream> OwnStream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  try {
    return c10::impl::getDeviceGuardImpl(device.type())->getStreamFromGlobalPool(device);
  } catch (const c10::Error&) {  // it has no pool of them
    return std::nullopt;
  }
}

absl::StatusOr<std::string> KernelsOf(const std::vector<c10::Device>& devices) {
  std::string kernels;
  for (const c10::Device device : devices) {
    MACAW_RETURN_IF_ERROR(Open(device));
    const std::string own = KernelsOf(device);
    if (!kernels.empty() && own != kernels) {
      return absl::FailedPreconditionError(absl::StrCat(
          "workers.devices: ", devices.front().str(), " is \"", kernels, "\" and ", device.str(),
          " \"", own,
          "\", which give other bits, so a result would depend on which of them trains a client: "
          "start a worker for each kind"));
    }
    kernels = own;
  }
  return kernels;
}

std::string KernelsOf(c10::Device device) {
  const std::string kind = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (!device.is_cuda()) return kind;
  constexpr int kMajor = 75, kMinor = 76;  // cudaDevAttrComputeCapability…
  const int index = device.has_index() ? device.index() : 0;
  const int major = AttributeOf(index, kMajor), minor = AttributeOf(index, kMinor);
  return major < 0 ? kind : absl::StrCat(kind, " sm_", major, minor);
}

}  // namespace macaw::training
