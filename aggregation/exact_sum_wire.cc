#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_header.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/parallel_for.h"
#include "core/status.h"

// The aligned form. Every block begins on 64 bytes.
//
//   SumHeader · one SumChannelHeader per channel · pad
//   the integers of each channel · pad
//   for each collected vector: CollectedHeader · its bytes · pad

namespace macaw::aggregation {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire form is written as it lies in memory");

uint64_t HeadBytes(size_t channels) { return Padded(SumHeadBytes(channels)); }

// The smallest and the largest of `integers`; both 0 if there are none.
FoldKernels::Span SpanOf(std::span<const int64_t> integers) {
  if (integers.empty()) return {};
  std::vector<FoldKernels::Span> pieces((integers.size() - 1) / kGrain + 1);
  ParallelFor(integers.size(), kGrain, [&](size_t begin, size_t end) {
    pieces[begin / kGrain] = BestKernels().span(integers.data() + begin, end - begin);
  });
  return {std::ranges::min(pieces, {}, &FoldKernels::Span::low).low,
          std::ranges::max(pieces, {}, &FoldKernels::Span::high).high};
}

}  // namespace

uint64_t ExactSum::State::AlignedBytes() const {
  uint64_t bytes = HeadBytes(channels.size());
  for (size_t c = 0; c < channels.size(); ++c) bytes += Padded(count(c) * sizeof(int64_t));
  return bytes;
}

uint64_t ExactSum::bytes() const { return state_->AlignedBytes(); }

AlignedBuffer ExactSum::Encode() const {
  state_->Unfold();
  return State::Encode({{state_.get()}});
}

absl::StatusOr<AlignedBuffer> ExactSum::EncodeTogether(std::span<const ExactSum> sums,
                                                       SumForm form) {
  return EncodeAll(sums, form, After::kTheyStay);
}

absl::StatusOr<AlignedBuffer> ExactSum::EncodeLast(std::span<ExactSum> sums, SumForm form) {
  return EncodeAll(sums, form, After::kTheyEnd);
}

absl::StatusOr<AlignedBuffer> ExactSum::EncodeAll(std::span<const ExactSum> sums, SumForm form,
                                                  After after) {
  // The counts of the sums so far, and whose vectors they have collected.
  State all(sums.front().state_->plan);
  std::vector<const State*> states;
  const auto unfold = [&] {
    for (const ExactSum& sum : sums) sum.state_->Unfold();
  };
  for (const ExactSum& sum : sums) {
    State& state = *sum.state_;
    MACAW_RETURN_IF_ERROR(all.CheckMerge(state));
    if (sums.size() > 1 || !state.folded.empty()) state.Unfold();
    all.multiplicity += state.multiplicity;
    all.weight += state.weight;
    for (size_t c = 0; c < state.channels.size(); ++c) {
      std::vector<State::Collected>& collected = all.channels[c].collected;
      for (const State::Collected& entry : state.channels[c].collected)
        collected.push_back({.client = entry.client});
      std::ranges::sort(collected, {}, &State::Collected::client);
    }
    states.push_back(&state);
  }
  if (form == SumForm::kCompact) {
    AlignedBuffer compact = State::EncodeCompact(states, after);
    if (compact.size() > 0) return compact;
  }
  unfold();
  return State::Encode(states);
}

std::vector<const ExactSum::State::Collected*> ExactSum::State::CollectedOf(
    std::span<const State* const> parts, size_t channel) {
  std::vector<const Collected*> all;
  for (const State* part : parts) {
    for (const Collected& entry : part->channels[channel].collected) all.push_back(&entry);
  }
  std::ranges::sort(all, {}, [](const Collected* entry) { return entry->client; });
  return all;
}

AlignedBuffer ExactSum::State::Encode(std::span<const State* const> states) {
  const State& shape = *states.front();
  SumHeader header{.channels = static_cast<uint32_t>(shape.channels.size()),
                   .plan = shape.plan->digest.bytes};
  uint64_t size = shape.AlignedBytes();
  std::vector<const State*> parts;  // those with clients
  for (const State* state : states) {
    if (state->clients == 0) continue;
    parts.push_back(state);
    header.clients += state->clients;
    header.multiplicity += state->multiplicity;
    header.weight += state->weight;
    for (size_t c = 0; c < shape.channels.size(); ++c)
      size += state->channels[c].collected.size() * CollectedBytes(shape.spec(c));
  }

  AlignedBuffer buffer = AlignedBuffer::Shareable(size);
  std::byte* const out = buffer.bytes().data();
  uint64_t offset = 0;
  const auto put = [&](const void* from, size_t count) {
    if (count != 0) std::memcpy(out + offset, from, count);
    offset += count;
  };
  const auto pad = [&] {
    std::memset(out + offset, 0, Padded(offset) - offset);
    offset = Padded(offset);
  };
  put(&header, sizeof(header));
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    SumChannelHeader head;
    for (const State* part : parts) {
      head.max_abs = std::max(head.max_abs, part->channels[c].max_abs);
      head.collected += part->channels[c].collected.size();
    }
    put(&head, sizeof(head));
  }
  pad();
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    const Reduction reduction = shape.spec(c).reduction;
    const uint64_t count = shape.count(c);
    auto* const integers = reinterpret_cast<int64_t*>(out + offset);
    if (parts.empty()) {
      std::fill_n(integers, count, reduction == Reduction::kMax ? kNoKey : 0);
    } else if (count != 0) {
      std::vector<const int64_t*> from;
      for (const State* part : parts) from.push_back(part->channels[c].integers.data());
      Combine(reduction, from, integers, count);
    }
    offset += count * sizeof(int64_t);
    pad();
  }
  for (size_t c = 0; c < shape.channels.size(); ++c) {
    for (const Collected* entry : CollectedOf(parts, c)) {
      const CollectedHeader head{entry->client.value, entry->multiplicity};
      put(&head, sizeof(head));
      const auto bytes = entry->vector.view().bytes;
      put(bytes.data(), bytes.size());
      pad();
    }
  }
  return buffer;
}

absl::StatusOr<uint64_t> ExactSum::MostEncodedBytes(std::vector<ChannelSpec> channels,
                                                    const GridOrder& order) {
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                         Plan::Make(std::move(channels), order));
  uint64_t bytes = HeadBytes(plan->channels.size());
  for (size_t c = 0; c < plan->channels.size(); ++c) {
    const ChannelSpec& spec = plan->channels[c];
    bytes += spec.reduction == Reduction::kCollect
                 ? order.total_multiplicity * CollectedBytes(spec)
                 : Padded(spec.layout->size() * plan->grids[c].limbs * sizeof(int64_t));
  }
  return bytes;
}

uint64_t ExactSum::BytesOfAClient(std::span<const ChannelSpec> channels) {
  uint64_t bytes = 0;
  for (const ChannelSpec& spec : channels) {
    if (spec.reduction == Reduction::kCollect) bytes += CollectedBytes(spec);
  }
  return bytes;
}

std::optional<uint64_t> ExactSum::ClientsIn(std::span<const std::byte> encoded) {
  if (encoded.size() < sizeof(SumHeader)) return std::nullopt;
  const auto header = ReadAt<SumHeader>(encoded, 0);
  return header.magic == SumHeader::kMagic ? std::optional(header.clients) : std::nullopt;
}

absl::StatusOr<ExactSum> ExactSum::Decode(std::shared_ptr<const AlignedBuffer> encoded,
                                          std::vector<ChannelSpec> channels,
                                          const GridOrder& order) {
  const std::span<const std::byte> bytes = encoded->bytes();
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                         Plan::Make(std::move(channels), order));
  if (bytes.size() < sizeof(SumHeader)) return RefusedSum("it is shorter than a header");
  const auto header = ReadAt<SumHeader>(bytes, 0);
  if (header.magic != SumHeader::kMagic) return RefusedSum("it is not an encoded sum");
  const bool compact = header.version == static_cast<uint32_t>(SumForm::kCompact);
  if (!compact && header.version != static_cast<uint32_t>(SumForm::kAligned)) {
    return RefusedSum(
        absl::StrCat("it has version ", header.version, ", this program reads versions 1 and 2"));
  }
  if (header.plan != plan->digest.bytes || header.channels != plan->channels.size()) {
    return RefusedSum("it was made for other channels, bounds or another cohort");
  }
  ExactSum sum(std::make_unique<State>(plan));
  State& s = *sum.state_;
  s.clients = header.clients;
  s.multiplicity = header.multiplicity;
  s.weight = header.weight;
  // Before memory is made for what it claims to hold.
  MACAW_RETURN_IF_ERROR(Annotate(s.CheckCounts(), "encoded sum refused"));
  State::Spans spans;
  if (compact) {
    MACAW_ASSIGN_OR_RETURN(spans, s.ReadCompact(bytes, header.alone_weight));
    if (!s.folded.empty()) s.lender = std::move(encoded);
  } else {
    s.lender = std::move(encoded);
    MACAW_RETURN_IF_ERROR(s.ReadBlocks(bytes));
  }
  MACAW_RETURN_IF_ERROR(Annotate(s.Check(spans), "encoded sum refused"));
  return sum;
}

absl::Status ExactSum::State::ReadBlocks(std::span<const std::byte> bytes) {
  uint64_t offset = HeadBytes(channels.size());  // of the collected vectors
  for (size_t c = 0; c < channels.size(); ++c) offset += Padded(count(c) * sizeof(int64_t));
  if (bytes.size() < offset) {
    return RefusedSum(
        absl::StrCat("it has ", bytes.size(), " bytes, its channels alone need ", offset));
  }
  uint64_t block = HeadBytes(channels.size());
  for (size_t c = 0; c < channels.size(); ++c) {
    Channel& channel = channels[c];
    const auto head =
        ReadAt<SumChannelHeader>(bytes, sizeof(SumHeader) + c * sizeof(SumChannelHeader));
    channel.max_abs = head.max_abs;
    channel.integers = {reinterpret_cast<const int64_t*>(bytes.data() + block), count(c)};
    block += Padded(channel.integers.size_bytes());
    const uint64_t expected = spec(c).reduction == Reduction::kCollect ? clients : 0;
    if (head.collected != expected ||
        head.collected > (bytes.size() - offset) / CollectedBytes(spec(c))) {
      return RefusedSum(absl::StrCat("channel '", spec(c).name, "' cannot hold ", head.collected,
                                     " vectors here"));
    }
    for (uint64_t i = 0; i < head.collected; ++i, offset += CollectedBytes(spec(c))) {
      MACAW_RETURN_IF_ERROR(ReadCollected(c, bytes.subspan(offset, CollectedBytes(spec(c)))));
    }
  }
  if (offset != bytes.size()) {
    return RefusedSum(absl::StrCat("it has ", bytes.size(), " bytes instead of ", offset));
  }
  return absl::OkStatus();
}

absl::Status ExactSum::State::ReadCollected(size_t c, std::span<const std::byte> bytes) {
  const auto head = ReadAt<CollectedHeader>(bytes, 0);
  FlatVector vector = FlatVector::Unset(spec(c).layout);
  std::memcpy(vector.view().bytes.data(), bytes.data() + sizeof(head), vector.view().bytes.size());
  return Collect(c, head.client, head.multiplicity, std::move(vector));
}

absl::Status ExactSum::State::Collect(size_t c, uint64_t client, uint64_t times,
                                      FlatVector vector) {
  std::vector<Collected>& collected = channels[c].collected;
  if (times == 0 || times > plan->order.max_multiplicity ||
      (!collected.empty() && collected.back().client.value >= client)) {
    return RefusedSum(absl::StrCat("channel '", spec(c).name,
                                   "': the collected clients are not in order at client ", client,
                                   ", or its multiplicity is not as planned"));
  }
  if (!(LargestMagnitude(vector.view()) <= spec(c).bound)) {
    return RefusedSum(absl::StrCat("channel '", spec(c).name, "': the vector of client ", client,
                                   " is not finite or beyond the bound"));
  }
  collected.push_back({ClientId(client), static_cast<uint32_t>(times), std::move(vector)});
  return absl::OkStatus();
}

absl::Status ExactSum::State::CheckCounts() const {
  const GridOrder& order = plan->order;
  if (clients > multiplicity || multiplicity > order.total_multiplicity ||
      (clients == 0) != (multiplicity == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it counts ", clients, " clients with total multiplicity ", multiplicity,
                     " of ", order.total_multiplicity, " planned"));
  }
  if (multiplicity > clients * order.max_multiplicity || weight < 0 ||
      weight > plan->weight_limit || (clients == 0 && weight != 0)) {
    return absl::InvalidArgumentError("its weight or multiplicity is more than the plan allows");
  }
  return absl::OkStatus();
}

absl::Status ExactSum::State::Check(const Spans& known) const {
  MACAW_RETURN_IF_ERROR(CheckCounts());
  for (size_t c = 0; c < channels.size(); ++c) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("channel '", spec(c).name, "' ", why));
    };
    const Channel& channel = channels[c];
    if (!(channel.max_abs >= 0) || !(channel.max_abs <= spec(c).bound) ||
        (clients == 0 && channel.max_abs != 0)) {
      return refuse(absl::StrCat("claims a largest value of ", channel.max_abs));
    }
    const auto span_of = [&](int limb) {
      return c < known.size() && !known[c].empty()
                 ? known[c][limb]
                 : SpanOf(channel.integers.subspan(limb * size(c), size(c)));
    };
    switch (spec(c).reduction) {
      case Reduction::kCollect: {
        uint64_t drawn = 0;
        for (const Collected& entry : channel.collected) drawn += entry.multiplicity;
        if (drawn != multiplicity) return refuse("does not hold every client it counts");
        break;
      }
      case Reduction::kMax: {
        const auto [low, high] = span_of(0);
        const bool fits = clients == 0 ? low == kNoKey && high == kNoKey
                                       : low >= OrderedKey(-channel.max_abs) &&
                                             high <= OrderedKey(channel.max_abs);
        if (size(c) != 0 && !fits) return refuse("has a maximum above the largest value it claims");
        break;
      }
      default:
        for (int limb = 0; limb < plan->grids[c].limbs; ++limb) {
          const auto [low, high] = span_of(limb);
          const int64_t limit =
              plan->LimbLimit(c, limb, clients, multiplicity, weight, channel.max_abs);
          if (low < -limit || high > limit)
            return refuse("has a sum that its clients cannot have reached");
        }
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::aggregation
