#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "core/digest.h"
#include "core/ids.h"

namespace macaw::aggregation {

// A round's channels and order, checked once, with everything that follows from them. Immutable,
// thread-safe. Private to this room.
//
// Why no order of additions can overflow: write W for Σ m·w (or Σ m) and n for the number of
// contributions in a partial sum. Each contribution adds at most m·w·M·2^bits + 1/2 to the first
// limb, so it is at most W·M·2^bits + n/2, and `bits` is chosen such that W_planned·M·2^bits ≤
// 2^61. Each adds at most 2^limb_bits to a further limb, and `limb_bits` is chosen such that
// n_planned·2^limb_bits ≤ 2^61. Add and Merge refuse to exceed the planned n or W, and Decode
// refuses integers above the limit for the n and W it claims. Both limits are additive, so every
// partial sum is below 2^62.
struct Plan {
  std::vector<ChannelSpec> channels;
  GridOrder order;
  std::vector<Grid> grids;  // parallel to channels
  // M·w is stored as an integer times 2^-weight_bits: exact for integer weights.
  int weight_bits = 0;
  int64_t weight_limit =
      0;          // total_weight on that grid, with some room for weights that are not integers
  Digest digest;  // of all of the above; parts of another plan are refused

  static absl::StatusOr<std::shared_ptr<const Plan>> Make(std::vector<ChannelSpec> channels,
                                                          const GridOrder& order);

  // The largest value that limb `limb` of channel `channel` can reach after `clients` contributions
  // with this total `weight` (in weight units) and `multiplicity`, none of whose values exceeds
  // `largest`.
  int64_t LimbLimit(size_t channel, int limb, uint64_t clients, uint64_t multiplicity,
                    int64_t weight, double largest) const;

  // Whether a contribution may be added to a sum with this multiplicity and weight (in units): its
  // own multiplicity and weight are planned, and so are the totals. The error names the client.
  absl::Status CheckContribution(ClientId client, double weight, uint32_t multiplicity,
                                 uint64_t sum_multiplicity, int64_t sum_weight) const;
  // What a value of the channel is multiplied with before it is rounded: m·w·2^bits, or m·2^bits.
  double Scale(size_t channel, double weight, uint32_t multiplicity) const;

  // m·w in weight units, and back.
  int64_t ToUnits(double weight) const;
  double FromUnits(int64_t units) const;
};

}  // namespace macaw::aggregation
