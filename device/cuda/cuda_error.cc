#include "device/cuda/cuda_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace macaw::device {
namespace {

// The documentation of these says that the process must end to use CUDA again, or that the device
// or its driver is gone.
bool LosesDevice(cudaError_t code) {
  constexpr int kContained = 721;  // cudaErrorContained, which CUDA 12.4 does not name yet
  if (static_cast<int>(code) == kContained) return true;
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorCudartUnloading:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status CudaError(cudaError_t code, absl::string_view what) {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorString(code), " (",
                                        cudaGetErrorName(code), ", ", static_cast<int>(code), ")");
  if (LosesDevice(code)) {
    return absl::UnavailableError(
        absl::StrCat(text,
                     "; this process cannot use the device any more (`dmesg | grep Xid` "
                     "says more)"));
  }
  if (code == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace macaw::device
