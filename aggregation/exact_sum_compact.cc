#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_header.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/block_kernels.h"
#include "core/blocks.h"
#include "core/status.h"

// The compact form, of a sum with clients:
//
//   SumHeader · one SumChannelHeader per channel
//   the blocks of each channel (core/blocks.h), limb by limb
//   for each collected vector: client (8 bytes) · multiplicity (4) · its blocks; f64: its bytes
//
// A client alone is written as its own floats. The reader rounds them to the grid as Add did, so it
// gets the same integers. The writer has the integers only, and takes the floats nearest to them;
// where these do not round to the same integers, it writes integers.

namespace macaw::aggregation {
namespace {

using Scratch = std::array<int64_t, 3 * kBlock>;

ValueForms FormsOf(const ChannelSpec& spec) {
  return {.short_floats = spec.coded, .levels = spec.coded ? spec.levels : 0};
}

// Whether a client alone is written as floats.
bool HasFloats(const ChannelSpec& spec) {
  return IsSum(spec.reduction) && spec.layout->dtype() == DType::kF32;
}

// The largest |v| that Rounded(v, scale) takes to zero.
float LargestThatIsZero(double scale) {
  const double half = 0.5 / scale;
  float largest = half >= std::numeric_limits<float>::max() ? std::numeric_limits<float>::max()
                                                            : static_cast<float>(half);
  while (largest > 0 && double{largest} * scale > 0.5) largest = std::nextafterf(largest, 0.0f);
  return largest;
}

void WriteVector(const ChannelSpec& spec, ConstVectorView vector, std::vector<std::byte>* out,
                 BlockWriter& writer) {
  if (vector.dtype() == DType::kF32) {
    ForEachBlock(*spec.layout, [&](uint64_t offset, size_t count) {
      writer.Values(vector.As<float>().subspan(offset, count), FormsOf(spec));
    });
    writer.End();
  } else if (out != nullptr) {
    out->insert(out->end(), vector.bytes.begin(), vector.bytes.end());
  }
}

// What lies between the tensors, and behind them.
void ZeroGaps(const ParameterLayout& layout, std::span<int64_t> integers) {
  uint64_t end = 0;  // of the tensor before
  for (const LayoutEntry& entry : layout.entries()) {
    std::ranges::fill(integers.subspan(end, entry.offset - end), 0);
    end = entry.offset + entry.size;
  }
  std::ranges::fill(integers.subspan(end), 0);
}

constexpr size_t kCollectedHead = sizeof(uint64_t) + sizeof(uint32_t);

}  // namespace

AlignedBuffer ExactSum::State::EncodeCompact(std::span<const State* const> states) {
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
  std::vector<std::byte> out;
  const auto put = [&out](const void* from, size_t count) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    out.insert(out.end(), bytes, bytes + count);
  };
  uint64_t aligned = shape.AlignedBytes();
  for (const State* part : parts) {
    header.multiplicity += part->multiplicity;
    header.weight += part->weight;
  }
  out.reserve(aligned / 2);
  put(&header, sizeof(header));
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    SumChannelHeader head;
    for (const State* part : parts) {
      head.max_abs = std::max(head.max_abs, part->channels[c].max_abs);
      head.collected += part->channels[c].collected.size();
    }
    aligned += head.collected * CollectedBytes(shape.spec(c));
    put(&head, sizeof(head));
  }

  BlockWriter writer(&out);
  Scratch sums, again;
  std::array<float, kBlock> floats;
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    const ChannelSpec& spec = shape.spec(c);
    if (spec.reduction == Reduction::kCollect) continue;
    if (!shape.channels[c].alone.empty() && header.alone_weight > 0) {
      WriteVector(spec, shape.channels[c].alone.view(), &out, writer);
      continue;
    }
    const bool as_floats = HasFloats(spec) && header.alone_weight > 0;
    const double scale = as_floats ? shape.plan->Scale(c, header.alone_weight,
                                                       static_cast<uint32_t>(header.multiplicity))
                                   : 1;
    for (int limb = 0; limb < shape.plan->grids[c].limbs; ++limb) {
      ForEachBlock(*spec.layout, [&](uint64_t offset, size_t count) {
        std::vector<const int64_t*> from;
        for (const State* part : parts)
          from.push_back(part->channels[c].integers.data() + limb * shape.size(c) + offset);
        Combine(spec.reduction, from, sums.data(), count);
        const std::span<const int64_t> block = std::span(sums).first(count);
        if (!as_floats) return writer.Integers(block);
        for (size_t i = 0; i < count; ++i)
          floats[i] = static_cast<float>(static_cast<double>(sums[i]) / scale);
        kernels.set_f32(floats.data(), scale, again.data(), count);
        const float largest = std::bit_cast<float>(kernels.largest_f32(floats.data(), count));
        if (largest <= spec.bound && std::ranges::equal(block, std::span(again).first(count)))
          return writer.Values(std::span(floats).first(count), {});
        writer.Integers(block);
      });
    }
    writer.End();
    if (out.size() >= aligned) return {};
  }
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    for (const Collected* entry : CollectedOf(parts, c)) {
      put(&entry->client.value, sizeof(uint64_t));
      put(&entry->multiplicity, sizeof(uint32_t));
      WriteVector(shape.spec(c), entry->vector.view(), &out, writer);
    }
  }
  if (out.size() >= aligned) return {};
  AlignedBuffer buffer = AlignedBuffer::Unset(out.size());
  std::memcpy(buffer.bytes().data(), out.data(), out.size());
  return buffer;
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
      WriteVector(spec, vector, nullptr, writer);
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
      WriteVector(spec, values[c], nullptr, writer);
    } else if (floats) {
      ForEachBlock(*spec.layout, [&](uint64_t, size_t count) { writer.CountFloats(count, count); });
    } else {
      bytes += spec.layout->count() * sizeof(int64_t) * s.plan->grids[c].limbs;
    }
  }
  return bytes + writer.bytes();
}

absl::StatusOr<ExactSum::State::Spans> ExactSum::State::ReadCompact(
    std::span<const std::byte> bytes, double w) {
  if (clients == 0) return RefusedSum("a compact sum has at least one client");
  if (bytes.size() < SumHeadBytes(channels.size()))
    return RefusedSum("it is shorter than its headers");
  const auto times = static_cast<double>(multiplicity);
  const bool alone = clients == 1 && w > 0 && times * w <= plan->order.max_weight &&
                     multiplicity <= plan->order.max_multiplicity;
  if (w != 0 && (!alone || plan->ToUnits(times * w) != weight))
    return RefusedSum(absl::StrCat("it cannot be of one client that weighs ", w));
  alone_weight = w;
  BlockReader reader(bytes.subspan(SumHeadBytes(channels.size())));
  Spans spans(channels.size());
  const auto read = [&](size_t c) -> absl::Status {
    if (spec(c).reduction == Reduction::kCollect) return ReadVectors(c, reader);
    MACAW_ASSIGN_OR_RETURN(spans[c], ReadIntegers(c, reader));
    return absl::OkStatus();
  };
  for (const bool collected : {false, true}) {
    for (size_t c = 0; c < channels.size(); ++c) {
      if ((spec(c).reduction == Reduction::kCollect) != collected) continue;
      const auto head =
          ReadAt<SumChannelHeader>(bytes, sizeof(SumHeader) + c * sizeof(SumChannelHeader));
      channels[c].max_abs = head.max_abs;
      absl::Status status = head.collected == (collected ? clients : 0)
                                ? absl::OkStatus()
                                : absl::InvalidArgumentError(
                                      absl::StrCat("it cannot hold ", head.collected, " vectors"));
      if (status.ok()) status = read(c);
      if (!status.ok())
        return RefusedSum(absl::StrCat("channel '", spec(c).name, "': ", status.message()));
    }
  }
  if (reader.left() > 0)
    return RefusedSum(absl::StrCat("it has ", reader.left(), " bytes too many"));
  return spans;
}

absl::StatusOr<std::vector<FoldKernels::Span>> ExactSum::State::ReadIntegers(size_t c,
                                                                             BlockReader& reader) {
  const FoldKernels& kernels = BestKernels();
  const bool as_floats = HasFloats(spec(c)) && alone_weight > 0;
  const double scale =
      as_floats ? plan->Scale(c, alone_weight, static_cast<uint32_t>(multiplicity)) : 1;
  const std::span<int64_t> own = Own(c);
  BlockValues block;
  std::array<int64_t, kBlock> some;
  absl::Status status;
  const auto read = [&](std::span<int64_t> to, FoldKernels::Span& all) -> absl::Status {
    FoldKernels::Span span;
    if (!as_floats || reader.HasIntegers()) {
      MACAW_RETURN_IF_ERROR(reader.Integers(to));
      span = kernels.span(to.data(), to.size());
    } else {
      MACAW_RETURN_IF_ERROR(reader.Values(to.size(), block));
      const float largest =
          std::bit_cast<float>(kernels.largest_f32(block.values.data(), block.count));
      // Beyond it rounding to the grid has no meaning.
      if (!(largest <= spec(c).bound))
        return absl::InvalidArgumentError("a value is not finite or beyond the bound");
      kernels.set_f32(&largest, scale, &span.high, 1);
      span.low = -span.high;
      kernels.set_f32(block.values.data(), scale, block.all ? to.data() : some.data(), block.count);
      if (!block.all) {
        BestBlockKernels().zero(to.data(), to.size());
        for (size_t i = 0; i < block.count; ++i) to[block.places[i]] = some[i];
      }
    }
    all = {.low = std::min(all.low, span.low), .high = std::max(all.high, span.high)};
    return absl::OkStatus();
  };
  std::vector<FoldKernels::Span> spans;
  for (int limb = 0; limb < plan->grids[c].limbs; ++limb) {
    const std::span<int64_t> integers = own.subspan(limb * size(c), size(c));
    FoldKernels::Span& span = spans.emplace_back();
    ZeroGaps(*spec(c).layout, integers);
    ForEachBlock(*spec(c).layout, [&](uint64_t offset, size_t count) {
      if (status.ok()) status = read(integers.subspan(offset, count), span);
    });
  }
  channels[c].integers = own;
  if (status.ok()) status = reader.End();
  if (!status.ok()) return status;
  return spans;
}

absl::Status ExactSum::State::ReadVectors(size_t c, BlockReader& reader) {
  for (uint64_t i = 0; i < clients; ++i) {
    const std::span<const std::byte> head = reader.Raw(kCollectedHead);
    if (head.empty()) return absl::InvalidArgumentError("it ends before its last vector");
    FlatVector vector(spec(c).layout);
    if (vector.view().dtype() == DType::kF64) {
      const std::span<const std::byte> values = reader.Raw(vector.view().bytes.size());
      if (values.empty()) return absl::InvalidArgumentError("it ends before its last vector");
      std::ranges::copy(values, vector.view().bytes.begin());
    } else {
      absl::Status status;
      ForEachBlock(*spec(c).layout, [&](uint64_t offset, size_t count) {
        if (status.ok()) status = reader.Values(vector.As<float>().subspan(offset, count));
      });
      if (status.ok()) status = reader.End();
      if (!status.ok()) return status;
    }
    MACAW_RETURN_IF_ERROR(Collect(c, ReadAt<uint64_t>(head, 0),
                                  ReadAt<uint32_t>(head, sizeof(uint64_t)), std::move(vector)));
  }
  return absl::OkStatus();
}

}  // namespace macaw::aggregation
