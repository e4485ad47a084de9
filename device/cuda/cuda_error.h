#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::device {

// The error of a call to the CUDA runtime. `what`: the device and what was tried. After a failure
// that leaves the process's context unusable (an illegal address, an Xid, a lost driver) it is
// kUnavailable; without memory kResourceExhausted; otherwise kInternal.
absl::Status CudaError(cudaError_t code, absl::string_view what);

}  // namespace macaw::device
