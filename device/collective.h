#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"

namespace macaw::device {

// What the devices of one host do together, so that a round crosses to the host once and not once a
// device: their integer sums are added up on the first one. Integers, so the result has the same
// bits however it is done. Calls return when the work is done; the devices' own queues must have
// been waited for. One thread at a time.
class Collective {
 public:
  enum class Operation : uint8_t { kSum, kMaximum };

  virtual ~Collective() = default;

  virtual size_t devices() const = 0;
  // to[i] = the sum, or the maximum, of parts[d][i] over the devices d. parts[d] is on device d and
  // stays as it is, `to` is on device 0 and overlaps none of them. After an error `to` has
  // arbitrary contents.
  virtual absl::Status Reduce(Operation operation, std::span<const int64_t* const> parts,
                              int64_t* to, size_t count) = 0;
  virtual std::string name() const = 0;  // for the log: "host", "nccl 2.28.9"
};

// Through the host's memory, a piece at a time. Needs nothing but the devices, which outlive it.
absl::StatusOr<std::unique_ptr<Collective>> MakeHostCollective(std::vector<Device*> devices);

// `first`, until it fails; from then on `second`, beginning with the call that failed. The log says
// so once. kUnavailable is an error of a device and not of the way, so it is passed on.
std::unique_ptr<Collective> WithFallback(std::unique_ptr<Collective> first,
                                         std::unique_ptr<Collective> second);

}  // namespace macaw::device
