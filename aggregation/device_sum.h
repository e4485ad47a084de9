#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "aggregation/exact_sum.h"
#include "core/vector.h"
#include "device/collective.h"
#include "device/device.h"
#include "device/kernel.h"

namespace macaw::aggregation {

// One client's result, where it was computed.
struct DeviceContribution {
  struct Value {
    // Of channels with DeviceSum::OnDevice: (on_device − minus)·factor, as large as the channel's
    // layout. No minus: nothing is subtracted. The factor is for the parameters alone.
    const float* on_device = nullptr;
    const float* minus = nullptr;
    float factor = 1;
    ConstVectorView on_host;  // of the others; must live until Add returns
  };
  ClientId client{};
  double weight = 1;              // as in Contribution
  uint32_t multiplicity = 1;      // as in Contribution
  std::span<const Value> values;  // one a channel
};

// An ExactSum whose integers are on a device, for clients that are trained there. Which client
// passes is decided on the device, between two kernels, so that nothing waits for it: the host
// learns later who was refused. The integers are those that ExactSum::Add gives. Channels of
// float64 and collected vectors stay on the host; they are small, or needed there.
//
// Add (many times) → Settle (now and then) → Merge (other sums of the device) → MoveTo (once a
// round)
//
// One thread at a time, the one of the queue.
class DeviceSum {
 public:
  // Whether a channel's integers are on the device: float32, and not kCollect.
  static bool OnDevice(const ChannelSpec& channel);

  // All work goes to `queue`, on which the clients' vectors are computed, too. Both outlive the
  // sum. `most_pending`: clients that can be added between two calls of Settle. kResourceExhausted:
  // the device has not so much memory (8 bytes a parameter).
  static absl::StatusOr<std::unique_ptr<DeviceSum>> Make(device::Device& device,
                                                         device::Queue& queue,
                                                         std::vector<ChannelSpec> channels,
                                                         const GridOrder& order,
                                                         uint32_t most_pending);
  ~DeviceSum();

  // Resets to these channels and this order, drops what was added, and reuses the memory where it
  // fits. After an error the object can only be renewed or destroyed.
  absl::Status Renew(std::vector<ChannelSpec> channels, const GridOrder& order);

  // Enqueues the clients' contributions. Their vectors on the device must stay as they are until
  // the queue has done it. Errors are the caller's mistakes (too many pending clients), and change
  // nothing; what is wrong with a client is in Settle's answer.
  absl::Status Add(std::span<const DeviceContribution> contributions);

  // Waits for the queue. For each contribution since the last call, in the order of adding: OK if
  // it was added, else the error of ExactSum::Add, and then nothing of it was added. Clients that
  // are pending count against the planned totals as if they were added. The outer error is the
  // queue's: then the sum is lost.
  absl::StatusOr<std::vector<absl::Status>> Settle();

  // Adds a sum of the same device, channels and order, which is empty afterwards. Both are settled.
  // Errors as of ExactSum::Merge.
  absl::Status Merge(DeviceSum& other);

  // Adds all to `sum`, which has the same channels and order, and is empty afterwards. Settled
  // before. Until something else is added to `sum`, it reads memory of the device's host side, so
  // it must not outlive the device.
  absl::Status MoveTo(ExactSum& sum);

  // The same for the sums of several devices, one on each, in the collective's order; they are
  // added up on the first. After an error of the collective all sums are as they were.
  static absl::Status MoveTogether(device::Collective& collective, std::span<DeviceSum* const> sums,
                                   ExactSum& sum);

  uint64_t clients() const;  // that were added; pending ones are not counted
  uint64_t bytes() const;    // of the device's memory

 private:
  struct State;
  explicit DeviceSum(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The host's copies of the kernels, for devices that are not there.
std::vector<device::HostKernelEntry> SumHostKernels();

}  // namespace macaw::aggregation
