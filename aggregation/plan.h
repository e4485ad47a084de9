#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "core/digest.h"

namespace macaw::aggregation {

// A round's channels and order, checked once, with everything that follows from them. Immutable,
// thread-safe. Private to this room.
//
// Why no order of additions can overflow. Write W for Σ m·w (or Σ m) and n for the number of
// contributions of a partial sum. Each contribution adds at most m·w·M·2^bits + 1/2 to a first
// limb, so a first limb is at most W·M·2^bits + n/2, and `bits` makes W_planned·M·2^bits ≤ 2^61.
// Each adds at most 2^limb_bits to a further limb, and `limb_bits` makes n_planned·2^limb_bits ≤
// 2^61. Add and Merge refuse what would pass n or W as planned, and Decode refuses integers above
// the limit of the n and W that it claims; both limits are additive, so every partial sum that
// exists is below 2^62.
struct Plan {
  std::vector<ChannelSpec> channels;
  GridOrder order;
  std::vector<Grid> grids;  // parallel to channels
  int weight_bits = 0;  // m·w is kept as an integer times 2^-weight_bits: exact for whole weights
  int64_t weight_limit =
      0;          // total_weight on that grid, and a little for weights that are not whole
  Digest digest;  // of all of the above: parts of another plan are refused

  static absl::StatusOr<std::shared_ptr<const Plan>> Make(std::vector<ChannelSpec> channels,
                                                          const GridOrder& order);

  // What limb `limb` of channel `channel` can reach after `clients` contributions that weigh
  // `weight` (in weight units) and `multiplicity` together and whose largest |value| is `largest`.
  int64_t LimbLimit(size_t channel, int limb, uint64_t clients, uint64_t multiplicity,
                    int64_t weight, double largest) const;

  // m·w in weight units, and back.
  int64_t ToUnits(double weight) const;
  double FromUnits(int64_t units) const;
};

// Whether the channel's integers are sums on a grid; kMax keeps ordered keys, kCollect nothing.
constexpr bool IsSum(Reduction reduction) {
  return reduction == Reduction::kWeightedMean || reduction == Reduction::kMean ||
         reduction == Reduction::kFixedSum;
}

}  // namespace macaw::aggregation
