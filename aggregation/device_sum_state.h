#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "aggregation/device_sum.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/plan.h"

namespace macaw::aggregation {

// What a DeviceSum holds. Private to device_sum.cc, which adds contributions, and to
// device_sum_move.cc, which takes the sum elsewhere.
struct DeviceSum::State {
  struct Channel {
    size_t index = 0;     // of the plan
    size_t size = 0;      // elements
    size_t factored = 0;  // of them parameters
    uint32_t pieces = 0;
    device::Memory integers;
    double max_abs = 0;
  };
  // A contribution since the last Settle.
  struct Pending {
    ClientId client{};
    double weight = 0;
    uint32_t multiplicity = 0;
    absl::Status status;  // what the host knows already
    size_t measures = 0;  // where its own begin; those of its next channel are `stride` on
    size_t stride = 0;    // clients of its call of Add that the device has
    size_t row = 0;       // its verdict
    std::vector<FlatVector> on_host;  // of the channels that are not on the device
  };

  State(device::Device& device, device::Queue& queue) : device(device), queue(queue) {}

  device::Device& device;
  device::Queue& queue;
  std::shared_ptr<const Plan> plan;
  uint32_t most_pending = 0;
  std::vector<Channel> channels;      // those on the device
  std::vector<size_t> host_channels;  // of the plan
  std::optional<ExactSum> on_host;    // the others; none if there are no others
  std::vector<ChannelSpec> host_specs;

  // Tables of the pending clients: the host's side is page-locked and may not change before Settle.
  device::Memory vectors, vectors_host;    // FoldVector: channels · most_pending
  device::Memory measures, measures_host;  // Measure: the same
  device::Memory verdicts, verdicts_host;  // ClientVerdict: most_pending
  device::Memory pieces;                   // Measure: of one call and channel
  device::Memory reduced;                  // a channel of MoveTogether
  // Where MoveTo puts the integers; an ExactSum may still read the last ones.
  std::shared_ptr<device::Memory> taken;

  std::vector<Pending> pending;
  size_t rows = 0;  // of pending clients that the device has

  uint64_t clients = 0;
  uint64_t multiplicity = 0;  // with those pending
  int64_t weight = 0;         // with those pending, in units

  absl::Status Allocate();
  absl::Status Empty();
  void Begin(std::span<const DeviceContribution> contributions);
  void Enqueue(size_t first_row, size_t count);
  absl::StatusOr<absl::Status> Conclude(Pending& client);

  device::Launch ForElements(size_t count) const {
    const uint32_t threads = device.info().best_threads;
    constexpr uint32_t kBlocksOfProcessor = 8;  // at the same time; enough to wait for memory
    const uint32_t most = device.info().processors * kBlocksOfProcessor;
    return {static_cast<uint32_t>(std::clamp<size_t>((count + threads - 1) / threads, 1, most)),
            threads};
  }
  absl::Status CheckSettled() const {
    if (pending.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(pending.size(), " clients of a device's sum are pending: settle it first"));
  }
  // A sum without integers, whose totals are this one's.
  ExactSum::State Counts() const;
  // Adds what the other has on the host: counts, maxima, its channels there.
  absl::Status MergeHost(State& other);
  size_t integers_bytes() const;
  // Page-locked memory for the integers of all channels, one after the other.
  absl::StatusOr<std::shared_ptr<device::Memory>> HostMemory();
  // Adds to `sum` what this one counts; its integers have come to `integers`.
  absl::Status Give(std::shared_ptr<device::Memory> integers, ExactSum& sum);
};

}  // namespace macaw::aggregation
