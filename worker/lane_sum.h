#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "aggregation/device_sum.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/workspace.h"
#include "algorithms/around/channels.h"
#include "core/ids.h"
#include "device/collective.h"
#include "device/device.h"
#include "training/api/trainer.h"

namespace macaw::worker {

// Whom a lane adds.
struct Addend {
  ClientId client{};
  double weight = 1;
  uint32_t multiplicity = 1;
};

// The sum of a lane's clients in one phase. A client whose large vectors are on the trainer's
// device is added there, and its vectors never travel. The others are added on the host, and so are
// all where the device has no memory for a sum. Integers, so both ways give the same sum.
//
// Open → Add and Settle (many times) → TakeHost and Collect
//
// One thread at a time.
class LaneSum {
 public:
  // `seat`: the trainer's device, which outlives this; none: everything is on the host. `width`:
  // clients that are added between two calls of Settle.
  LaneSum(std::optional<training::DeviceSeat> seat, size_t width) : seat_(seat), width_(width) {}

  bool is_open() const { return host_.has_value(); }
  // Where clients may be added.
  enum class Where : uint8_t { kAnywhere, kOnHost };
  // For a phase with these channels. Does nothing if it is open.
  absl::Status Open(const std::vector<aggregation::ChannelSpec>& channels,
                    const aggregation::GridOrder& order, Where where = Where::kAnywhere);

  // `values`: one a channel. They and what they refer to must live until Settle. What vectors of
  // the broadcast they refer to must not change while the sum is open. Returns how many bytes the
  // client would send in a part of its own; with a device, as if its update had no zeros. Errors
  // are a device's, and not the client's.
  absl::StatusOr<uint64_t> Add(const Addend& client, std::span<const algorithms::UpValue> values,
                               algorithms::Workspace& workspace,
                               algorithms::Ends ends = algorithms::Ends::kStay);
  // For each client since the last call: OK if it was added, else the error of ExactSum::Add. The
  // outer error is a device's.
  absl::StatusOr<std::vector<absl::Status>> Settle();
  // Instead of Settle after an error: nothing refers to the clients since the last call any more.
  void Forget();

  // Takes the host's sum, if a client was added to it. The object is closed and empty afterwards.
  std::optional<aggregation::ExactSum> TakeHost();

  device::Device* device() const { return seat_.has_value() ? seat_->device : nullptr; }
  // What is on the device; null: there is no sum for this phase.
  aggregation::DeviceSum* on_device() const { return on_device_open_ ? on_device_.get() : nullptr; }

  // What some lanes have on their devices, as one sum; none: nobody was added there. The sums of a
  // device are added up on it, and those of several devices by `collective`, whose devices are
  // those of the lanes, in the order of their first lanes; null: one after the other, through the
  // host. An error is a device's.
  static absl::StatusOr<std::optional<aggregation::ExactSum>> Collect(
      std::span<LaneSum* const> lanes, device::Collective* collective);

 private:
  using OnDevice = aggregation::DeviceContribution;

  // A vector of the broadcast that was copied to the device.
  struct Copy {
    const std::byte* from = nullptr;  // null: free for another one
    device::Memory memory;
  };

  void OpenOnDevice();
  // The client's values where its device can add them; none: the host must.
  absl::StatusOr<std::optional<std::vector<OnDevice::Value>>> ForDevice(
      std::span<const algorithms::UpValue> values, algorithms::Workspace& workspace);
  absl::StatusOr<const float*> CopyOnDevice(ConstVectorView vector);

  const std::optional<training::DeviceSeat> seat_;
  const size_t width_;
  std::vector<aggregation::ChannelSpec> channels_;
  aggregation::GridOrder order_;
  std::optional<aggregation::ExactSum> host_;
  std::unique_ptr<aggregation::DeviceSum> on_device_;  // kept between phases, with its memory
  bool on_device_open_ = false;
  bool warned_ = false;
  std::deque<Copy> copies_;

  // Since the last Settle.
  std::vector<absl::Status> answers_;  // of those on the device: not yet
  std::vector<size_t> places_;         // among the answers, of those on the device
  std::vector<OnDevice> waiting_;
  std::deque<std::vector<OnDevice::Value>> waiting_values_;
};

}  // namespace macaw::worker
