#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_header.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/block_kernels.h"
#include "core/blocks.h"
#include "core/parallel_for.h"
#include "core/passed_bytes.h"
#include "core/status.h"

// Reads the compact form (exact_sum_compact.cc writes it). A large sum is checked and stays as it
// came: its integers are made when they are needed, or go block by block into the sum to which it
// is added.

namespace macaw::aggregation {
namespace {

// What lies between the tensors, and behind them.
void ZeroGaps(const ParameterLayout& layout, std::span<int64_t> integers) {
  uint64_t end = 0;  // of the tensor before
  for (const LayoutEntry& entry : layout.entries()) {
    std::ranges::fill(integers.subspan(end, entry.offset - end), 0);
    end = entry.offset + entry.size;
  }
  std::ranges::fill(integers.subspan(end), 0);
}

}  // namespace

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
  const std::span<const std::byte> blocks = bytes.subspan(SumHeadBytes(channels.size()));
  BlockReader reader(blocks);
  Spans spans(channels.size());
  const bool folds = IsLarge();
  const auto read = [&](size_t c) -> absl::Status {
    if (spec(c).reduction == Reduction::kCollect) return ReadVectors(c, reader);
    MACAW_ASSIGN_OR_RETURN(spans[c], folds ? ReadIntegers(c, reader, nullptr) : Unfold(c, reader));
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
  if (folds) folded = blocks;
  return spans;
}

bool ExactSum::State::IsLarge() const {
  uint64_t all = 0;
  for (size_t c = 0; c < channels.size(); ++c) all += count(c);
  return all >= kLargeSum;
}

absl::StatusOr<std::vector<FoldKernels::Span>> ExactSum::State::ReadIntegers(
    size_t c, BlockReader& reader, const UseBlock* use) const {
  const FoldKernels& kernels = BestKernels();
  const bool as_floats = HasFloats(spec(c)) && alone_weight > 0;
  const double scale =
      as_floats ? plan->Scale(c, alone_weight, static_cast<uint32_t>(multiplicity)) : 1;
  BlockValues block;
  std::array<int64_t, kBlock> some, scratch;
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
      if (use != nullptr) {
        int64_t* const rounded = block.all ? to.data() : some.data();
        kernels.set_f32(block.values.data(), scale, rounded, block.count);
        if (!block.all) {
          BestBlockKernels().zero(to.data(), to.size());
          for (size_t i = 0; i < block.count; ++i) to[block.places[i]] = some[i];
        }
      }
    }
    all = {.low = std::min(all.low, span.low), .high = std::max(all.high, span.high)};
    return absl::OkStatus();
  };
  const std::span<const std::byte> bytes = reader.rest();
  PassedBytes passed(bytes);
  std::vector<FoldKernels::Span> spans;
  for (int limb = 0; limb < plan->grids[c].limbs; ++limb) {
    FoldKernels::Span& span = spans.emplace_back();
    ForEachBlock(*spec(c).layout, [&](uint64_t offset, size_t count) {
      if (!status.ok()) return;
      const uint64_t at = limb * size(c) + offset;
      const std::span<int64_t> to =
          use != nullptr && use->place ? use->place(at, count) : std::span(scratch).first(count);
      status = read(to, span);
      passed.Until(bytes.size() - reader.left());
      if (status.ok() && use != nullptr && use->take) use->take(at, to);
    });
  }
  if (status.ok()) status = reader.End();
  if (!status.ok()) return status;
  return spans;
}

absl::StatusOr<std::vector<FoldKernels::Span>> ExactSum::State::Unfold(size_t c,
                                                                       BlockReader& reader) {
  const std::span<int64_t> own = Own(c);
  for (int limb = 0; limb < plan->grids[c].limbs; ++limb)
    ZeroGaps(*spec(c).layout, own.subspan(limb * size(c), size(c)));
  const UseBlock use = {
      .place = [own](uint64_t at, size_t count) { return own.subspan(at, count); }};
  MACAW_ASSIGN_OR_RETURN(std::vector<FoldKernels::Span> spans, ReadIntegers(c, reader, &use));
  channels[c].integers = own;
  return spans;
}

void ExactSum::State::Unfold() {
  for (size_t c = 0; c < channels.size(); ++c) {
    const FlatVector first = std::exchange(channels[c].first, FlatVector());
    if (first.empty()) continue;
    const double scale = plan->Scale(c, alone_weight, static_cast<uint32_t>(multiplicity));
    const std::span<int64_t> own = Own(c);
    const float* const values = first.As<float>().data();
    ParallelFor(size(c), kGrain, [&](size_t begin, size_t end) {
      BestKernels().set_f32(values + begin, scale, own.data() + begin, end - begin);
    });
    channels[c].integers = own;
  }
  if (folded.empty()) return;
  BlockReader reader(std::exchange(folded, {}));
  for (size_t c = 0; c < channels.size(); ++c) {  // collected vectors come behind the others
    if (spec(c).reduction != Reduction::kCollect) (void)Unfold(c, reader);  // it was read before
  }
  lender = nullptr;
}

void ExactSum::State::AddTo(State& sum) {
  if (folded.empty()) Unfold();
  BlockReader reader(folded);
  const FoldKernels& kernels = BestKernels();
  for (size_t c = 0; c < channels.size(); ++c) {
    if (count(c) == 0) continue;
    const int64_t* const before = sum.channels[c].integers.data();
    const std::span<int64_t> own = sum.Own(c);
    if (folded.empty()) {
      const int64_t* const parts[] = {before, channels[c].integers.data()};
      Combine(spec(c).reduction, parts, own.data(), own.size());
    } else {
      if (before != own.data())
        ParallelCopy(std::as_bytes(std::span(before, own.size())),
                     std::as_writable_bytes(own).data());
      const auto merge =
          spec(c).reduction == Reduction::kMax ? kernels.merge_max : kernels.merge_add;
      const UseBlock use = {.take = [&](uint64_t at, std::span<const int64_t> block) {
        merge(block.data(), own.data() + at, block.size());
      }};
      (void)ReadIntegers(c, reader, &use);  // it was read before
    }
    sum.channels[c].integers = own;
  }
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
