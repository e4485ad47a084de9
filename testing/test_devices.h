#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_kernel.h"
#include "device/device.h"
#include "device/kernel.h"

namespace macaw::testing_support {

// The devices that one suite of tests runs on: the fake one, alone and with teams of several
// threads, and this machine's first GPU in builds with CUDA.
std::vector<std::string> TestDeviceNames();  // good as parts of a test's name

// A device, or the reason why there is none, with which the test skips:
//
//   const TestDevice made = MakeTestDevice(GetParam(), host_kernels, cuda_kernels);
//   if (made.device == nullptr) GTEST_SKIP() << made.skip;
struct TestDevice {
  std::unique_ptr<device::Device> device;
  std::string skip;  // "no NVIDIA driver: ..."
};
TestDevice MakeTestDevice(const std::string& name, std::vector<device::HostKernelEntry> on_host,
                          std::vector<device::CudaKernel> on_gpu);

}  // namespace macaw::testing_support
