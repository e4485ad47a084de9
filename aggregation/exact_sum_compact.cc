#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_header.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/blocks.h"
#include "core/file_blocks.h"
#include "core/parallel_for.h"
#include "core/status.h"

// The compact form, of a sum with clients:
//
//   SumHeader · one SumChannelHeader per channel
//   the blocks of each channel (core/blocks.h), limb by limb
//   for each collected vector: client (8 bytes) · multiplicity (4) · its blocks; f64: its bytes
//
// A client alone is written as its own floats. The reader rounds them to the grid as Add did, so it
// gets the same integers. The writer takes the floats nearest to the integers; where these do not
// round to the same integers, it writes integers. exact_sum_unfold.cc reads this form.

namespace macaw::aggregation {
namespace {

using Scratch = std::array<int64_t, 3 * kBlock>;

ValueForms FormsOf(const ChannelSpec& spec) {
  return {.short_floats = spec.coded, .levels = spec.coded ? spec.levels : 0};
}

// The largest |v| that Rounded(v, scale) takes to zero.
float LargestThatIsZero(double scale) {
  const double half = 0.5 / scale;
  float largest = half >= std::numeric_limits<float>::max() ? std::numeric_limits<float>::max()
                                                            : static_cast<float>(half);
  while (largest > 0 && double{largest} * scale > 0.5) largest = std::nextafterf(largest, 0.0f);
  return largest;
}

// The bytes of a compact sum, which grow. Large ones are never there twice.
class Output {
 public:
  explicit Output(uint64_t expected) : buffer_(UnsetWithoutSpace(expected)) {}

  uint64_t size() const { return size_; }
  void Put(const void* from, size_t count) {
    if (count == 0) return;
    if (count > buffer_.size() - size_) {
      AlignedBuffer larger = UnsetWithoutSpace((size_ + count) / 2 * 3 + count);
      TakeSpace(larger.bytes().first(size_));
      ParallelCopy(std::as_const(buffer_).bytes().first(size_), larger.bytes().data());
      buffer_ = std::move(larger);
    }
    TakeSpace(buffer_.bytes().subspan(size_, count));
    Overwrite(buffer_.bytes().data() + size_, {static_cast<const std::byte*>(from), count});
    size_ += count;
  }
  // The same, of a writer's bytes, which are taken.
  void Take(std::vector<std::byte>& bytes) {
    Put(bytes.data(), bytes.size());
    bytes.clear();
  }
  AlignedBuffer Done() && {
    buffer_.Truncate(size_);
    return std::move(buffer_);
  }

 private:
  AlignedBuffer buffer_;
  uint64_t size_ = 0;
};

// Writes blocks one after the other, those of large layouts by all cores.
class Blocks {
 public:
  explicit Blocks(Output& out) : out_(out) {}

  using Write = absl::FunctionRef<void(BlockWriter& writer, uint64_t offset, size_t count)>;
  // What lies before the offset is not read again.
  using Passed = absl::FunctionRef<void(uint64_t offset)>;
  void Of(
      const ParameterLayout& layout, Write write, Passed passed = [](uint64_t) {}) {
    const std::vector<BlockPiece> pieces = BlockPiecesOf(layout);
    if (pieces.size() < 2) {
      ForEachBlock(layout, [&](uint64_t at, size_t count) {
        write(writer_, at, count);
        if (bytes_.size() >= kAtOnce) out_.Take(bytes_);
      });
      return out_.Take(bytes_);
    }
    std::vector<std::vector<std::byte>> written(std::min(kWave, pieces.size()));
    for (size_t first = 0; first < pieces.size(); first += kWave) {
      const size_t some = std::min(kWave, pieces.size() - first);
      std::vector<std::unique_ptr<BlockWriter>> writers(some);
      ParallelFor(some, 1, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
          written[i].clear();
          written[i].reserve(kPieceBytes);
          writers[i] = std::make_unique<BlockWriter>(&written[i]);
          ForEachBlockOf(layout, pieces[first + i],
                         [&](uint64_t at, size_t count) { write(*writers[i], at, count); });
        }
      });
      for (const std::unique_ptr<BlockWriter>& piece : writers) {
        writer_.Join(*piece);
        out_.Take(bytes_);
      }
      const size_t next = first + some;
      if (next == pieces.size()) continue;
      passed(layout.entries()[pieces[next].entry].offset + pieces[next].at);
    }
  }
  void End() {
    writer_.End();
    out_.Take(bytes_);
  }

 private:
  static constexpr size_t kWave = 16;                  // pieces at a time
  static constexpr size_t kAtOnce = size_t{32} << 10;  // bytes that stay in a cache
  static constexpr size_t kPieceBytes = (sizeof(float) + 1) * kBlocksOfPiece * kBlock;

  Output& out_;
  std::vector<std::byte> bytes_;  // that out_ has not taken yet
  BlockWriter writer_{&bytes_};
};

// Gives back the space of a vector of floats that is read for the last time.
class LastReading {
 public:
  LastReading() = default;  // of nothing
  explicit LastReading(const FlatVector& vector) : bytes_(BytesOf(vector)) {}
  // What lies before the number is not read again.
  void Passed(uint64_t offset) {
    const size_t until = offset * sizeof(float);
    if (bytes_.empty() || until - gone_ < kAtOnce) return;
    GiveUpSpace(bytes_.subspan(gone_, until - gone_));
    gone_ = until / kPage * kPage;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kAtOnce = size_t{16} << 20;  // each time takes milliseconds
  static std::span<const std::byte> BytesOf(const FlatVector& vector) {
    return vector.empty() ? std::span<const std::byte>() : vector.view().bytes;
  }

  std::span<const std::byte> bytes_;
  size_t gone_ = 0;  // its pages are
};

void WriteVector(const ChannelSpec& spec, ConstVectorView vector, Output& out) {
  if (vector.dtype() != DType::kF32) return out.Put(vector.bytes.data(), vector.bytes.size());
  Blocks blocks(out);
  blocks.Of(*spec.layout, [&](BlockWriter& writer, uint64_t offset, size_t count) {
    writer.Values(vector.As<float>().subspan(offset, count), FormsOf(spec));
  });
  blocks.End();
}

// Counts the bytes of the vector's blocks; those of a vector of doubles are no blocks.
void CountVector(const ChannelSpec& spec, ConstVectorView vector, BlockWriter& counter) {
  if (vector.dtype() != DType::kF32) return;
  ForEachBlock(*spec.layout, [&](uint64_t offset, size_t count) {
    counter.Values(vector.As<float>().subspan(offset, count), FormsOf(spec));
  });
  counter.End();
}

}  // namespace

void ExactSum::State::BlockOf(std::span<const State* const> parts, size_t c, uint64_t at,
                              std::span<int64_t> block) {
  const State& shape = *parts.front();
  const FoldKernels& kernels = BestKernels();
  if (const FlatVector& first = shape.channels[c].first; !first.empty()) {  // then it is alone
    const double scale =
        shape.plan->Scale(c, shape.alone_weight, static_cast<uint32_t>(shape.multiplicity));
    return kernels.set_f32(first.As<float>().data() + at, scale, block.data(), block.size());
  }
  const auto merge =
      shape.spec(c).reduction == Reduction::kMax ? kernels.merge_max : kernels.merge_add;
  std::memcpy(block.data(), shape.channels[c].integers.data() + at, block.size_bytes());
  for (const State* part : parts.subspan(1))
    merge(part->channels[c].integers.data() + at, block.data(), block.size());
}

bool ExactSum::State::IsMostlyFirst() const {
  uint64_t in_first = 0, others = 0;
  for (size_t c = 0; c < channels.size(); ++c) {
    if (!channels[c].collected.empty()) return false;
    if (!channels[c].first.empty() && plan->grids[c].limbs > 1)
      return false;  // read more than once
    (channels[c].first.empty() ? others : in_first) += count(c);
  }
  return others < in_first;
}

AlignedBuffer ExactSum::State::EncodeCompact(std::span<const State* const> states, After after) {
  std::vector<const State*> parts;  // those with clients
  uint64_t clients = 0;
  for (const State* state : states) {
    if (state->clients > 0) parts.push_back(state);
    clients += state->clients;
  }
  if (clients == 0) return {};
  const State& shape = *parts.front();
  const FoldKernels& kernels = BestKernels();
  SumHeader header{.version = static_cast<uint32_t>(SumForm::kCompact),
                   .channels = static_cast<uint32_t>(shape.channels.size()),
                   .plan = shape.plan->digest.bytes,
                   .clients = clients,
                   .alone_weight = clients == 1 ? shape.alone_weight : 0};
  uint64_t aligned = shape.AlignedBytes();
  for (const State* part : parts) {
    header.multiplicity += part->multiplicity;
    header.weight += part->weight;
  }
  // A client alone: four bytes a weight, and a byte a block.
  Output out(aligned / 2 + aligned / kBlock + SumHeadBytes(shape.channels.size()));
  out.Put(&header, sizeof(header));
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    SumChannelHeader head;
    for (const State* part : parts) {
      head.max_abs = std::max(head.max_abs, part->channels[c].max_abs);
      head.collected += part->channels[c].collected.size();
    }
    aligned += head.collected * CollectedBytes(shape.spec(c));
    out.Put(&head, sizeof(head));
  }

  const bool goes = after == After::kTheyEnd && parts.size() == 1 && header.alone_weight > 0 &&
                    shape.IsMostlyFirst();
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    const ChannelSpec& spec = shape.spec(c);
    if (spec.reduction == Reduction::kCollect) continue;
    if (!shape.channels[c].alone.empty() && header.alone_weight > 0) {
      WriteVector(spec, shape.channels[c].alone.view(), out);
      continue;
    }
    const bool as_floats = HasFloats(spec) && header.alone_weight > 0;
    const double scale = as_floats ? shape.plan->Scale(c, header.alone_weight,
                                                       static_cast<uint32_t>(header.multiplicity))
                                   : 1;
    Blocks blocks(out);
    LastReading reading = goes ? LastReading(shape.channels[c].first) : LastReading();
    for (int limb = 0; limb < shape.plan->grids[c].limbs; ++limb) {
      blocks.Of(
          *spec.layout,
          [&](BlockWriter& writer, uint64_t offset, size_t count) {
            std::array<int64_t, kBlock> sums, again;
            std::array<float, kBlock> floats;
            const std::span<int64_t> block = std::span(sums).first(count);
            BlockOf(parts, c, limb * shape.size(c) + offset, block);
            if (!as_floats) return writer.Integers(block);
            kernels.divide_f32(sums.data(), 1, scale, floats.data(), count);
            kernels.set_f32(floats.data(), scale, again.data(), count);
            const float largest = std::bit_cast<float>(kernels.largest_f32(floats.data(), count));
            if (largest <= spec.bound && std::ranges::equal(block, std::span(again).first(count)))
              return writer.Values(std::span(floats).first(count), {});
            writer.Integers(block);
          },
          [&](uint64_t offset) { reading.Passed(offset); });
    }
    blocks.End();
    if (!goes && out.size() >= aligned) return {};
  }
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    for (const Collected* entry : CollectedOf(parts, c)) {
      out.Put(&entry->client.value, sizeof(uint64_t));
      out.Put(&entry->multiplicity, sizeof(uint32_t));
      WriteVector(shape.spec(c), entry->vector.view(), out);
    }
  }
  if (!goes && out.size() >= aligned) return {};
  return std::move(out).Done();
}

void ExactSum::State::CountAlone(size_t c, const Contribution& contribution,
                                 BlockWriter& writer) const {
  const FoldKernels& kernels = BestKernels();
  const ConstVectorView vector = contribution.values[c];
  const bool sums = IsSum(spec(c).reduction);
  const double scale = sums ? plan->Scale(c, contribution.weight, contribution.multiplicity) : 1;
  if (HasFloats(spec(c))) {
    const float zero = LargestThatIsZero(scale);
    const float* const values = vector.As<float>().data();
    ForEachBlock(*spec(c).layout, [&](uint64_t offset, size_t count) {
      writer.CountFloats(kernels.count_above_f32(values + offset, zero, count), count);
    });
    return writer.End();
  }
  const Grid& grid = plan->grids[c];
  const double step = std::ldexp(1.0, grid.limb_bits);
  Scratch integers;
  for (int limb = 0; limb < grid.limbs; ++limb) {
    ForEachBlock(*spec(c).layout, [&](uint64_t offset, size_t count) {
      if (sums) {
        kernels.set_f64(vector.As<double>().data() + offset, scale, step, integers.data(), count);
      } else if (vector.dtype() == DType::kF64) {
        kernels.key_f64(vector.As<double>().data() + offset, integers.data(), count);
      } else {
        kernels.key_f32(vector.As<float>().data() + offset, integers.data(), count);
      }
      writer.Integers(std::span(integers).subspan(limb * count, count));
    });
  }
  writer.End();
}

uint64_t ExactSum::BytesAlone(const Contribution& contribution) const {
  const State& s = *state_;
  uint64_t bytes = SumHeadBytes(s.channels.size());
  uint64_t aligned = s.AlignedBytes();
  BlockWriter writer(nullptr);
  for (size_t c = 0; c < s.channels.size(); ++c) {
    const ChannelSpec& spec = s.spec(c);
    const ConstVectorView vector = contribution.values[c];
    if (spec.reduction == Reduction::kCollect) {
      bytes += kCollectedHead + (vector.dtype() == DType::kF64 ? spec.layout->bytes() : 0);
      aligned += CollectedBytes(spec);
    }
    if (spec.reduction == Reduction::kCollect || (HasFloats(spec) && spec.coded)) {
      CountVector(spec, vector, writer);
    } else {
      s.CountAlone(c, contribution, writer);
    }
  }
  return std::min(bytes + writer.bytes(), aligned);
}

uint64_t ExactSum::MostBytesAlone(std::span<const ConstVectorView> values) const {
  const State& s = *state_;
  uint64_t bytes = SumHeadBytes(s.channels.size());
  BlockWriter writer(nullptr);
  for (size_t c = 0; c < s.channels.size(); ++c) {
    const ChannelSpec& spec = s.spec(c);
    if (spec.reduction == Reduction::kCollect) bytes += kCollectedHead;
    const bool floats = spec.layout->dtype() == DType::kF32 && spec.reduction != Reduction::kMax;
    if (floats && spec.coded && !values.empty()) {
      CountVector(spec, values[c], writer);
    } else if (floats) {
      ForEachBlock(*spec.layout, [&](uint64_t, size_t count) { writer.CountFloats(count, count); });
    } else {
      bytes += spec.layout->count() * sizeof(int64_t) * s.plan->grids[c].limbs;
    }
  }
  return bytes + writer.bytes();
}

}  // namespace macaw::aggregation
