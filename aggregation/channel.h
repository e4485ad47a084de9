#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

namespace macaw::aggregation {

// How the values that clients send up one channel become one. With v_i a client's vector, w_i its
// weight under the run's weight policy and m_i its multiplicity in the cohort:
enum class Reduction : uint8_t {
  kWeightedMean = 0,  // Σ m_i w_i v_i / Σ m_i w_i
  kMean = 1,          // Σ m_i v_i / Σ m_i
  kFixedSum = 2,      // Σ m_i v_i / divisor: exactly zero when nobody sends anything
  kMax = 3,           // largest value per element
  kCollect = 4,  // every client's own vector, sorted by client id (robust rules); costs one vector
                 // a client
};

struct ChannelSpec {
  std::string name;
  LayoutPtr layout;  // dtype f32: one integer an element; f64: several
  Reduction reduction = Reduction::kWeightedMean;
  double bound = 65536;  // M: a client with a larger |value| is refused whole
  double divisor = 1;    // kFixedSum
};

// One client's result, borrowed until Add returns. `values[c]` belongs to channel c.
struct Contribution {
  ClientId client{};
  double weight = 1;          // w_i, by the run's policy
  uint32_t multiplicity = 1;  // m_i
  std::span<const ConstVectorView> values;
};

// What a round's grids are fixed from, before the first lease.
struct GridOrder {
  double max_weight = 1;    // largest m_i w_i of the cohort
  double total_weight = 1;  // Σ m_i w_i over the cohort
  uint32_t max_multiplicity = 1;
  uint64_t total_multiplicity = 1;
  friend bool operator==(const GridOrder&, const GridOrder&) = default;
};

// The fixed-point grid of a channel: a product p = m·w·v is kept as round-half-even(p · 2^bits), an
// integer below 2^50, and sums stay below 2^61, so no order of additions can overflow (DESIGN: bits
// = min(50 − log2 max_weight, 61 − log2 total_weight) − log2 M, logarithms rounded up). For f64
// channels the remainder of each product is kept on further limbs of the same kind, each
// `limb_bits` finer.
struct Grid {
  int bits = 0;
  int limbs = 1;
  int limb_bits = 0;
};
absl::StatusOr<Grid> MakeGrid(const ChannelSpec& channel, const GridOrder& order);

}  // namespace macaw::aggregation
