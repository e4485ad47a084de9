#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "device/collective.h"
#include "device/cuda/nccl_api.h"
#include "device/device.h"

namespace macaw::device {

// A GPU of this process, with its number for CUDA. Outlives the collective.
struct NcclPeer {
  Device* device = nullptr;
  int index = 0;
};

struct NcclOptions {
  double start_seconds = 120;  // for the connections between the devices
  double call_seconds = 60;    // for a sum; then it counts as hung
  double abort_seconds = 30;   // until an aborted call must have left the devices
};

// What NCCL's calls need of CUDA and of time. Tests put fake devices behind it.
struct NcclSeams {
  std::function<absl::Status(int index)> use_device;              // makes it the thread's device
  std::function<void*(Queue& queue)> stream_of;                   // a cudaStream_t
  std::function<absl::StatusOr<bool>(void* stream)> stream_done;  // does not wait
  std::function<void()> pause;                                    // between two looks
  const Clock* clock = nullptr;

  static NcclSeams OfCuda();
};

// Sums through NCCL, one communicator a device, all driven by the calling thread.
// Nothing blocks in NCCL: calls are looked after until they are done, fail or take too long. After
// an error or a time-out the communicators are aborted, and every later call is refused
// (kFailedPrecondition); WithFallback then goes on through the host. kUnavailable: a device is
// lost, or an aborted call does not leave it.
absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(NcclApi api, NcclSeams seams,
                                                               std::vector<NcclPeer> peers,
                                                               NcclOptions options = {});

// What a worker uses: NCCL with the host behind it, or the host alone where there is one device, or
// where NCCL is missing or does not start. The log says which and why.
absl::StatusOr<std::unique_ptr<Collective>> MakeGpuCollective(std::vector<NcclPeer> peers,
                                                              NcclOptions options = {});

}  // namespace macaw::device
