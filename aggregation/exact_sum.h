#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "core/buffer.h"
#include "core/vector.h"

namespace macaw::aggregation {

// The combined result of the cohort on one channel.
struct AggregatedChannel {
  std::string name;    // ChannelSpec::name
  FlatVector value;    // empty for kCollect, and for mean channels without contributions
  double weight = 0;   // Σ m·w (kWeightedMean) or Σ m (others)
  double max_abs = 0;  // largest |v| seen, for headroom warnings
  std::vector<std::pair<ClientId, FlatVector>> collected;  // kCollect, sorted by client id
};

struct Aggregate {
  uint64_t clients = 0;  // contributions, without multiplicity
  std::vector<AggregatedChannel> channels;
};

// How a sum lies on the wire. Both forms give the same sum.
enum class SumForm : uint8_t {
  kAligned = 1,  // the integers as they lie in memory, for a reader that maps them
  // Few bytes: integers with the bits that they use, and a client alone as its own values
  // (core/blocks.h). Where that is not less, the aligned form.
  kCompact = 2,
};

// Exact sums of clients' contributions over all channels. Each slot adds to its own sum, a worker
// encodes the sum of its slots' sums, and the server merges the workers' sums. Integer addition is
// associative, so the result has the same bits for any tree, order or number of workers.
//
// Add (many times, one thread) → Encode, Decode, Merge (any tree) → Report (once, at the root)
//
// Not thread-safe; give each thread its own. Large sums are encoded, checked, merged and reported
// by all cores (core/parallel_for.h). Movable.
class ExactSum {
 public:
  static absl::StatusOr<ExactSum> Make(std::vector<ChannelSpec> channels, const GridOrder& order);
  ExactSum(ExactSum&&) noexcept;
  ExactSum& operator=(ExactSum&&) noexcept;
  ~ExactSum();

  // Checks the whole contribution (layouts, weight ≤ max_weight, every |v| ≤ M and finite) before
  // adding anything, so a refused contribution changes nothing. The error names the client, the
  // channel, the tensor and the value. What the contribution gives away is taken at most then.
  absl::Status Add(const Contribution& contribution);
  // Whether Add would take it.
  absl::Status Check(const Contribution& contribution) const;

  // Adds another sum with the same channels and order, and consumes it. A sum of nobody takes over
  // the other's memory instead of adding. If the totals would exceed what the order planned (some
  // client was added twice), returns an error and changes nothing.
  absl::Status Merge(ExactSum&& other);

  // Divides, once per round. Consumes the sum.
  absl::StatusOr<Aggregate> Report() &&;

  uint64_t clients() const;
  uint64_t multiplicity() const;  // Σ m
  double weight() const;          // Σ m·w, rounded to the grid of the weights
  // Whether every kCollect channel holds the vectors of exactly these clients with these
  // multiplicities. `clients` is sorted by id. True if there are no such channels.
  bool CollectedFrom(std::span<const std::pair<ClientId, uint32_t>> clients) const;
  uint64_t bytes() const;  // size of the aligned form, without collected vectors
  // Size of the compact form of a sum of this contribution alone, which Check has passed.
  uint64_t BytesAlone(const Contribution& contribution) const;
  // The same as if no value were zero, but on channels that a codec has made, where `values` count.
  // No values: they are not at hand.
  uint64_t MostBytesAlone(std::span<const ConstVectorView> values = {}) const;

  // The aligned form: a header with counts and weights, then the integers, little-endian, 64-byte
  // aligned. Decode takes both forms. It checks sizes, counts and magnitudes against the channels
  // and the order before it uses anything, so any bytes give either a valid sum or an error. A
  // decoded sum reads its integers from aligned `bytes`, which must not change any more, until
  // something is added to it.
  AlignedBuffer Encode() const;
  // All of `sums` together, which are not empty and stay as they are. Reads each of them once.
  // Errors as of Merge.
  static absl::StatusOr<AlignedBuffer> EncodeTogether(std::span<const ExactSum> sums,
                                                      SumForm form = SumForm::kAligned);
  // The same for sums that are not used afterwards: the caller only destroys them. A large sum may
  // give its space on disk back while it is encoded (core/file_blocks.h).
  static absl::StatusOr<AlignedBuffer> EncodeLast(std::span<ExactSum> sums, SumForm form);
  // The largest size that Encode can give for the order's whole cohort.
  static absl::StatusOr<uint64_t> MostEncodedBytes(std::vector<ChannelSpec> channels,
                                                   const GridOrder& order);
  // How much of it is of each client: the vectors that kCollect channels keep.
  static uint64_t BytesOfAClient(std::span<const ChannelSpec> channels);
  // How many clients encoded bytes say that they hold, before anything is made of them: a compact
  // sum may be far smaller than its clients' vectors. Nothing: the bytes are no sum.
  static std::optional<uint64_t> ClientsIn(std::span<const std::byte> encoded);
  static absl::StatusOr<ExactSum> Decode(std::shared_ptr<const AlignedBuffer> bytes,
                                         std::vector<ChannelSpec> channels, const GridOrder& order);

 private:
  friend class DeviceSum;  // makes sums of what it has added up (device_sum.h)
  struct State;
  enum class After : uint8_t { kTheyStay, kTheyEnd };
  static absl::StatusOr<AlignedBuffer> EncodeAll(std::span<const ExactSum> sums, SumForm form,
                                                 After after);
  explicit ExactSum(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace macaw::aggregation
