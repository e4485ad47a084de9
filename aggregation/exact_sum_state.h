#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregation/exact_sum.h"
#include "aggregation/plan.h"
#include "core/vector.h"

namespace macaw::aggregation {

// The contents of an ExactSum, shared by its three sources (adding, reporting, wire form). Private
// to this room.
struct ExactSum::State {
  struct Collected {
    ClientId client{};
    uint32_t multiplicity = 1;
    FlatVector vector;
  };
  struct Channel {
    AlignedBuffer integers;  // limbs · size, limb by limb; empty for kCollect
    double max_abs = 0;
    std::vector<Collected> collected;  // sorted by client; kCollect only

    std::span<int64_t> all() { return integers.As<int64_t>(); }
    std::span<const int64_t> all() const { return integers.As<int64_t>(); }
  };

  // Allocates the integers, as zeros or with arbitrary contents that the caller overwrites.
  enum class Integers { kZero, kUnset };
  State(std::shared_ptr<const Plan> made_from, Integers integers);

  std::shared_ptr<const Plan> plan;
  uint64_t clients = 0;
  uint64_t multiplicity = 0;
  int64_t weight = 0;  // Σ m·w in the plan's weight units
  std::vector<Channel> channels;
  std::vector<double> largest;  // scratch of Add: max |v| per channel

  const ChannelSpec& spec(size_t channel) const { return plan->channels[channel]; }
  uint64_t size(size_t channel) const { return spec(channel).layout->size(); }

  // Adds one checked vector to one channel.
  void Fold(size_t channel, ConstVectorView view, const Contribution& contribution);
  // Whether a kCollect channel has this client's vector already.
  bool Has(size_t channel, ClientId client) const;

  // For Decode: reads the blocks of a wire form, then refuses values that no valid sum of so many
  // clients can have.
  absl::Status ReadBlocks(std::span<const std::byte> bytes);
  absl::Status ReadCollected(size_t channel, std::span<const std::byte> bytes);
  absl::Status Check() const;
};

// The largest |value|; NaN or infinity if the vector holds one.
double LargestMagnitude(ConstVectorView view);

}  // namespace macaw::aggregation
