// The code over the CUDA runtime, on a stand-in for the runtime: what it makes of errors.
#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/device/fake_cudart.h"
#include "tests/device/law_kernels.h"

namespace macaw::device {
namespace {

using ::testing::HasSubstr;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { MakeFakeGpus(2); }
  void TearDown() override { MakeFakeGpus(2); }
};

TEST_F(CudaDeviceTest, ListsTheGpus) {
  const absl::StatusOr<std::vector<DeviceInfo>> devices = ListCudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2);
  EXPECT_EQ(devices->front().capability, "9.0");
  EXPECT_THAT(devices->front().driver, HasSubstr("CUDA 13.0"));
}

// In the compute mode EXCLUSIVE_PROCESS, a context of a process that only looks would shut the
// worker out.
TEST_F(CudaDeviceTest, ListsThemWithoutAContext) {
  ASSERT_TRUE(ListCudaDevices().ok());
  EXPECT_EQ(TheFakeCudart().contexts, 0);
  ASSERT_TRUE(MakeCudaDevice(0, {}).ok());
  EXPECT_GT(TheFakeCudart().contexts, 0);
}

TEST_F(CudaDeviceTest, SaysWhenThereIsNoCodeForAGpu) {
  TheFakeCudart().code_error = cudaErrorNoKernelImageForDevice;
  const absl::Status status = MakeCudaDevice(1, LawCudaKernels()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(),
              testing::AllOf(HasSubstr("cuda:1"), HasSubstr("Stand-in"), HasSubstr("9.0"),
                             HasSubstr("MACAW_CUDA_ARCHITECTURES=90")));
  TheFakeCudart().code_error = cudaErrorIllegalAddress;
  EXPECT_TRUE(absl::IsUnavailable(MakeCudaDevice(1, LawCudaKernels()).status()));
  TheFakeCudart().code_error = cudaSuccess;
  EXPECT_TRUE(MakeCudaDevice(1, LawCudaKernels()).ok());
}

TEST_F(CudaDeviceTest, SaysWhyThereIsNone) {
  FakeCudart& runtime = TheFakeCudart();
  runtime.driver_version = 0;
  EXPECT_THAT(ListCudaDevices().status().message(), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(MakeCudaDevice(0, {}).status().message(), HasSubstr("no NVIDIA driver"));
  runtime.driver_version = 12020;
  runtime.count_error = cudaErrorInsufficientDriver;
  EXPECT_THAT(ListCudaDevices().status().message(),
              testing::AllOf(HasSubstr("too old"), HasSubstr("12.2"), HasSubstr("13.0")));
  runtime.driver_version = 13000;
  runtime.count_error = cudaErrorNoDevice;
  EXPECT_THAT(ListCudaDevices().status().message(), HasSubstr("no GPU"));
  runtime.count_error = cudaSuccess;
  const absl::Status status = MakeCudaDevice(2, {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("cuda:2"), HasSubstr("cuda:1")));
}

TEST_F(CudaDeviceTest, WorksOnTheSecondGpuFromAnyThread) {
  const std::unique_ptr<Device> first = *MakeCudaDevice(0, LawCudaKernels());
  const std::unique_ptr<Device> second = *MakeCudaDevice(1, LawCudaKernels());
  const std::unique_ptr<Queue> queue = *second->MakeQueue();
  const Memory memory = *second->Allocate(256);
  ASSERT_TRUE(first->Allocate(256).ok());  // now this thread's device is the first
  std::vector<uint32_t> out(64);
  queue->Run(kFill, {1, 32}, {memory.As<uint32_t>(), 64, 2});
  queue->CopyOut(std::as_writable_bytes(std::span(out)), memory.data());
  ASSERT_TRUE(queue->Wait().ok()) << queue->Wait();
  EXPECT_EQ(out[63], 126);
}

TEST_F(CudaDeviceTest, TellsALostDeviceFromOtherErrors) {
  const std::unique_ptr<Device> device = *MakeCudaDevice(0, LawCudaKernels());
  const Memory memory = *device->Allocate(256);
  const std::unique_ptr<Queue> queue = *device->MakeQueue();
  TheFakeCudart().gpus[0]->LoseAfter(1);
  queue->Zero(memory.data(), 256);
  queue->Zero(memory.data(), 256);
  const absl::Status status = queue->Wait();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("cuda:0"), HasSubstr("Xid")));
  EXPECT_TRUE(absl::IsUnavailable(device->Allocate(8).status()));
  EXPECT_TRUE(absl::IsUnavailable(device->FreeMemory().status()));
  EXPECT_TRUE(absl::IsUnavailable(device->MakeQueue().status()));
  EXPECT_EQ(queue->Wait(), status);
}

TEST_F(CudaDeviceTest, RefusesMoreThreadsThanTheKernelWasCompiledFor) {
  TheFakeCudart().most_threads = 128;
  const std::unique_ptr<Device> device = *MakeCudaDevice(0, LawCudaKernels());
  const Memory memory = *device->Allocate(256);
  const std::unique_ptr<Queue> queue = *device->MakeQueue();
  queue->Run(kFill, {1, 256}, {memory.As<uint32_t>(), 64, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(queue->Wait())) << queue->Wait();
  EXPECT_THAT(queue->Wait().message(), HasSubstr("256 threads"));
}

TEST_F(CudaDeviceTest, RefusesArgumentsOfAnotherBuild) {
  std::vector<CudaKernel> kernels = LawCudaKernels();
  kernels[0].args_bytes += 8;
  const std::unique_ptr<Device> device = *MakeCudaDevice(0, kernels);
  const Memory memory = *device->Allocate(256);
  const std::unique_ptr<Queue> queue = *device->MakeQueue();
  queue->Run(kFill, {1, 32}, {memory.As<uint32_t>(), 64, 2});
  EXPECT_THAT(queue->Wait().message(), HasSubstr("bytes of arguments"));
}

}  // namespace
}  // namespace macaw::device
