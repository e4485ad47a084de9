#include "testing/test_devices.h"

#include <utility>

#include "absl/status/statusor.h"
#include "testing/fake_device.h"
#ifdef MACAW_HAVE_CUDA
#include "device/cuda/cuda_device.h"
#endif

namespace macaw::testing_support {

std::vector<std::string> TestDeviceNames() {
  std::vector<std::string> names = {"Fake", "FakeWith3Threads"};
#ifdef MACAW_HAVE_CUDA
  names.emplace_back("Cuda");
#endif
  return names;
}

TestDevice MakeTestDevice(const std::string& name, std::vector<device::HostKernelEntry> on_host,
                          [[maybe_unused]] std::vector<device::CudaKernel> on_gpu) {
#ifdef MACAW_HAVE_CUDA
  if (name == "Cuda") {
    absl::StatusOr<std::unique_ptr<device::Device>> made =
        device::MakeCudaDevice(0, std::move(on_gpu));
    if (!made.ok()) return {nullptr, std::string(made.status().message())};
    return {*std::move(made), ""};
  }
#endif
  FakeDeviceOptions options;
  if (name == "FakeWith3Threads") options.threads = 3;
  return {std::make_unique<FakeDevice>(std::move(on_host), options), ""};
}

}  // namespace macaw::testing_support
