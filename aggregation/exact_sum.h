#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "core/vector.h"

namespace macaw::aggregation {

// The cohort's result on one channel.
struct AggregatedChannel {
  FlatVector value;    // empty for mean channels when nobody contributed, and for kCollect
  double weight = 0;   // Σ m·w (kWeightedMean) or Σ m (others)
  double max_abs = 0;  // largest |v| seen, for headroom warnings
  std::vector<std::pair<ClientId, FlatVector>> collected;  // kCollect, sorted by client id
};

struct Aggregate {
  uint64_t clients = 0;  // contributions, without multiplicity
  std::vector<AggregatedChannel> channels;
};

// Exact sums of a set of contributions over all channels: slots add into their own, a worker merges
// its slots', the server merges the workers'. Integer addition is associative, so the result is the
// same bits for any tree, order or number of workers.
//
//   Add (many times, one thread) → Merge (any tree) → Report (once, at the root)
//
// Not thread-safe; give each thread its own. Movable.
class ExactSum {
 public:
  static absl::StatusOr<ExactSum> Make(std::vector<ChannelSpec> channels, const GridOrder& order);
  ExactSum(ExactSum&&) noexcept;
  ExactSum& operator=(ExactSum&&) noexcept;
  ~ExactSum();

  // Checks the whole contribution (layouts, weight ≤ max_weight, every |v| ≤ M and finite) and only
  // then adds it: a refused one leaves no trace. The error names client, channel, tensor and value.
  absl::Status Add(const Contribution& contribution);

  // Adds another sum made from the same channels and order; it is used up, and an empty sum takes
  // its memory over instead of adding. Refuses, unchanged, when
  // totals would pass what the order planned (a client added twice somewhere).
  absl::Status Merge(ExactSum&& other);

  // Divides, once. Consumes the sum.
  absl::StatusOr<Aggregate> Report() &&;

  void Reset();  // to zero, keeping the memory
  uint64_t clients() const;
  uint64_t multiplicity() const;  // Σ m
  double weight() const;          // Σ m·w, on the grid of the weights
  // Whether every kCollect channel holds the vectors of exactly these clients, each with that
  // multiplicity. `clients` is sorted by id. True without such channels.
  bool CollectedFrom(std::span<const std::pair<ClientId, uint32_t>> clients) const;
  uint64_t bytes() const;  // of the encoded form, without collected vectors

  // The wire form: a header with counts and weights, then the integers, little-endian, 64-byte
  // aligned. Decode checks everything against channels and order (sizes, counts, magnitudes a legal
  // sum can reach) before use: any byte string gives a sum or an error.
  AlignedBuffer Encode() const;
  // The largest that Encode can make of the order's whole cohort.
  static absl::StatusOr<uint64_t> MostEncodedBytes(std::vector<ChannelSpec> channels,
                                                   const GridOrder& order);
  static absl::StatusOr<ExactSum> Decode(std::span<const std::byte> bytes,
                                         std::vector<ChannelSpec> channels, const GridOrder& order);

 private:
  struct State;
  explicit ExactSum(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace macaw::aggregation
