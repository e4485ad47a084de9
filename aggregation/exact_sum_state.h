#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "aggregation/fold_kernels.h"
#include "aggregation/plan.h"
#include "core/blocks.h"
#include "core/buffer.h"
#include "core/vector.h"

namespace macaw::aggregation {

// The contents of an ExactSum, shared by its sources (adding, reporting, the two wire forms) and
// DeviceSum. Private to this room.
struct ExactSum::State {
  struct Collected {
    ClientId client{};
    uint32_t multiplicity = 1;
    FlatVector vector;
  };
  struct Channel {
    // limbs · size, limb by limb; empty for kCollect. Without any client they have no value yet:
    // the first contribution is stored, not added. They lie in `own`, or in the lender's memory
    // while nothing has been added.
    std::span<const int64_t> integers;
    AlignedBuffer own;
    double max_abs = 0;
    std::vector<Collected> collected;  // sorted by client; kCollect only
    // The vector of the only client, of a channel that a codec has made: its integers do not tell
    // the levels. Empty: there are more clients, or none.
    FlatVector alone;
    // The vector of the only client, of another large channel, until Unfold: half the memory of its
    // integers, which are not there yet.
    FlatVector first;
  };

  // Between which integers those of each channel's limbs lie; none for a channel: not known.
  using Spans = std::vector<std::vector<FoldKernels::Span>>;

  explicit State(std::shared_ptr<const Plan> made_from);

  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const void> lender;  // keeps integers that were not copied: a decoded sum's bytes
  // The blocks of a large sum in the compact form, which were checked and which `lender` keeps.
  // Until Unfold there are no integers. Empty: it is no such sum.
  std::span<const std::byte> folded;
  uint64_t clients = 0;
  uint64_t multiplicity = 0;
  int64_t weight = 0;       // Σ m·w in the plan's weight units
  double alone_weight = 0;  // w of the only client; 0: not known, or there are more
  std::vector<Channel> channels;
  std::vector<double> largest;  // scratch of Add: max |v| per channel

  const ChannelSpec& spec(size_t channel) const { return plan->channels[channel]; }
  uint64_t size(size_t channel) const { return spec(channel).layout->size(); }
  // How many integers the channel has.
  uint64_t count(size_t channel) const {
    return spec(channel).reduction == Reduction::kCollect
               ? 0
               : size(channel) * plan->grids[channel].limbs;
  }
  // The channel's own integers, for writing. Allocates them when it has none; then they have
  // arbitrary contents, and `integers` is as it was.
  std::span<int64_t> Own(size_t channel);

  // Makes the integers, where `first` or `folded` stands for them.
  void Unfold();
  // Adds all integers to those of `sum`, which has them, or takes the maximum.
  void AddTo(State& sum);
  // Whether a decoded sum of its size stays folded.
  bool IsLarge() const;

  // Adds one checked vector to one channel.
  void Fold(size_t channel, ConstVectorView view, const Contribution& contribution);
  // Keeps the vector of the first client of a coded channel, and of no other. Before it counts.
  void Remember(size_t channel, ConstVectorView view);
  // Whether a kCollect channel has this client's vector already.
  bool Has(size_t channel, ClientId client) const;

  // The aligned form of their sum. All have the same plan, and CheckMerge has passed them.
  static AlignedBuffer Encode(std::span<const State* const> states);
  // The compact form (exact_sum_compact.cc); empty if it is not less. A sum with `first` comes
  // alone, and none is folded. kTheyEnd: gives back the space of `first` as it is read.
  static AlignedBuffer EncodeCompact(std::span<const State* const> states, After after);
  // Whether most of its numbers are those of `first`: then the compact form is less in any case.
  bool IsMostlyFirst() const;
  // Some integers of a channel's sum over `parts`, from `at` on.
  static void BlockOf(std::span<const State* const> parts, size_t channel, uint64_t at,
                      std::span<int64_t> block);
  uint64_t AlignedBytes() const;
  // What all parts have collected on a channel, by client.
  static std::vector<const Collected*> CollectedOf(std::span<const State* const> parts,
                                                   size_t channel);
  // Whether `other` may be added to this sum.
  absl::Status CheckMerge(const State& other) const;

  // For Decode: finds the blocks of the encoded sum.
  absl::Status ReadBlocks(std::span<const std::byte> bytes);
  absl::Status ReadCollected(size_t channel, std::span<const std::byte> bytes);
  // A collected vector that was read is added, unless it is out of order or its values are bad.
  absl::Status Collect(size_t channel, uint64_t client, uint64_t multiplicity, FlatVector vector);
  // For Decode of the compact form: the counts are set already.
  absl::StatusOr<Spans> ReadCompact(std::span<const std::byte> bytes, double weight_alone);
  // What ReadIntegers does with a block; `at`: its first integer, of all limbs.
  struct UseBlock {
    // Where it is to lie; none: in a place of its own.
    std::function<std::span<int64_t>(uint64_t at, size_t count)> place = {};
    std::function<void(uint64_t at, std::span<const int64_t> block)> take = {};
  };
  // Reads and checks the channel's integers; null: no more than that.
  absl::StatusOr<std::vector<FoldKernels::Span>> ReadIntegers(size_t channel, BlockReader& reader,
                                                              const UseBlock* use) const;
  // Reads them into the channel.
  absl::StatusOr<std::vector<FoldKernels::Span>> Unfold(size_t channel, BlockReader& reader);
  absl::Status ReadVectors(size_t channel, BlockReader& reader);
  // What a channel that is added up adds to BytesAlone, unless a codec has made it.
  void CountAlone(size_t channel, const Contribution& contribution, BlockWriter& writer) const;
  // Refuses counts and weights beyond the plan; and, too, values that no valid sum of so many
  // clients can have.
  absl::Status CheckCounts() const;
  absl::Status Check(const Spans& known = {}) const;
};

// Sums with so many integers are kept in fewer bytes than these where that is possible. Below it is
// not worth a second reading.
inline constexpr uint64_t kLargeSum = uint64_t{1} << 22;

// Whether a client alone is written as floats.
inline bool HasFloats(const ChannelSpec& spec) {
  return IsSum(spec.reduction) && spec.layout->dtype() == DType::kF32;
}

// A collected vector in the compact form begins with client and multiplicity.
inline constexpr size_t kCollectedHead = sizeof(uint64_t) + sizeof(uint32_t);

// Elements that one thread handles at once where several share a vector's work: 1 MiB of integers.
inline constexpr size_t kGrain = size_t{1} << 17;

// out = the sum, or the maximum, of `parts`, each with `count` integers. `out` may be one of them
// only if it is the first.
void Combine(Reduction reduction, std::span<const int64_t* const> parts, int64_t* out,
             size_t count);

// The error of a client whose vector has this value, which is not finite or beyond the bound.
absl::Status DescribeOffender(const ChannelSpec& spec, uint64_t index, double value);

// The largest |value|; NaN or infinity if the vector holds one.
double LargestMagnitude(ConstVectorView view);

}  // namespace macaw::aggregation
