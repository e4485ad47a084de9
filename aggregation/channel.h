#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

namespace macaw::aggregation {

// How the clients' values on a channel are combined. v_i is a client's vector, w_i its weight under
// the run's weight policy, m_i its multiplicity in the cohort:
enum class Reduction : uint8_t {
  kWeightedMean = 0,  // Σ m_i w_i v_i / Σ m_i w_i
  kMean = 1,          // Σ m_i v_i / Σ m_i
  kFixedSum = 2,      // Σ m_i v_i / divisor; zero when nobody contributed
  kMax = 3,           // largest value per element
  // Every client's own vector, sorted by client id (for robust rules); needs one vector per client.
  kCollect = 4,
};

// Whether the channel's integers are sums on a grid. kMax stores ordered keys instead, kCollect
// nothing.
constexpr bool IsSum(Reduction reduction) {
  return reduction == Reduction::kWeightedMean || reduction == Reduction::kMean ||
         reduction == Reduction::kFixedSum;
}

// The bounds that a channel can have: outside them an exponent could exceed a double's.
inline constexpr double kSmallestBound = 0x1p-200;
inline constexpr double kLargestBound = 0x1p200;

struct ChannelSpec {
  std::string name;
  LayoutPtr layout;  // dtype f32: one integer per element; f64: several
  Reduction reduction = Reduction::kWeightedMean;
  double bound = 65536;  // M: a client with a larger |value| is refused completely
  double divisor = 1;    // kFixedSum
  // Phases of a round in which clients send this channel; empty: all. A sum ignores it: its maker
  // chooses the channels of the phase.
  std::vector<Phase> phases = {};
  // The codec of [update] has made its values: the wire looks for short floats, and for levels, of
  // up to so many steps (core/blocks.h). It changes no sum.
  bool coded = false;
  uint32_t levels = 0;
};

// One client's result. The views must live until Add returns. `values[c]` belongs to channel c.
struct Contribution {
  ClientId client{};
  double weight = 1;          // w_i, under the run's weight policy
  uint32_t multiplicity = 1;  // m_i
  std::span<const ConstVectorView> values;
  // Gives away the memory of a channel's value, which then lives as long as the sum keeps it; an
  // empty vector: it may only be read. None: all may only be read.
  std::function<FlatVector(size_t channel)> give = nullptr;
};

// What determines a round's grids; fixed before the first lease.
struct GridOrder {
  double max_weight = 1;    // largest m_i w_i of the cohort
  double total_weight = 1;  // Σ m_i w_i over the cohort
  uint32_t max_multiplicity = 1;
  uint64_t total_multiplicity = 1;
  friend bool operator==(const GridOrder&, const GridOrder&) = default;
};

// The fixed-point grid of a channel. A product p = m·w·v is stored as round-half-even(p · 2^bits),
// an integer below 2^50, and sums stay below 2^61, so that no order of additions can overflow (bits
// = min(50 − log2 max_weight, 61 − log2 total_weight) − log2 M, logarithms rounded up). For f64
// channels the remainder of each product is stored in further limbs, each `limb_bits` finer than
// the one before.
struct Grid {
  int bits = 0;
  int limbs = 1;
  int limb_bits = 0;
};
absl::StatusOr<Grid> MakeGrid(const ChannelSpec& channel, const GridOrder& order);

}  // namespace macaw::aggregation
