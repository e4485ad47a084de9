#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/status.h"

// The wire form. All little-endian; every block begins on 64 bytes.
//
//   Header · one ChannelHeader per channel · pad
//   the integers of each channel · pad
//   for each collected vector: CollectedHeader · its bytes · pad

namespace macaw::aggregation {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire form is written as it lies in memory");

constexpr std::array<char, 8> kMagic = {'m', 'a', 'c', 'a', 'w', 's', 'u', 'm'};
constexpr uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t channels = 0;
  std::array<uint8_t, 32> plan{};  // Plan::digest
  uint64_t clients = 0;
  uint64_t multiplicity = 0;
  int64_t weight = 0;
  uint64_t reserved = 0;
};
static_assert(sizeof(Header) == 80);

struct ChannelHeader {
  double max_abs = 0;
  uint64_t collected = 0;
};
static_assert(sizeof(ChannelHeader) == 16);

struct CollectedHeader {
  uint64_t client = 0;
  uint64_t multiplicity = 0;
};
static_assert(sizeof(CollectedHeader) == 16);

constexpr uint64_t Padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t HeadBytes(size_t channels) {
  return Padded(sizeof(Header) + channels * sizeof(ChannelHeader));
}

uint64_t CollectedBytes(const ChannelSpec& spec) {
  return Padded(sizeof(CollectedHeader) + spec.layout->bytes());
}

template <typename T>
T Read(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("encoded sum refused: ", why));
}

}  // namespace

uint64_t ExactSum::bytes() const {
  uint64_t bytes = HeadBytes(state_->channels.size());
  for (const State::Channel& channel : state_->channels) bytes += Padded(channel.integers.size());
  return bytes;
}

AlignedBuffer ExactSum::Encode() const {
  const State& s = *state_;
  uint64_t size = bytes();
  for (size_t c = 0; c < s.channels.size(); ++c)
    size += s.channels[c].collected.size() * CollectedBytes(s.spec(c));
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

  const Header header{.channels = static_cast<uint32_t>(s.channels.size()),
                      .plan = s.plan->digest.bytes,
                      .clients = s.clients,
                      .multiplicity = s.multiplicity,
                      .weight = s.weight};
  put(&header, sizeof(header));
  for (const State::Channel& channel : s.channels) {
    const ChannelHeader head{channel.max_abs, channel.collected.size()};
    put(&head, sizeof(head));
  }
  pad();
  for (const State::Channel& channel : s.channels) {
    put(channel.integers.bytes().data(), channel.integers.size());
    pad();
  }
  for (const State::Channel& channel : s.channels) {
    for (const State::Collected& entry : channel.collected) {
      const CollectedHeader head{entry.client.value, entry.multiplicity};
      put(&head, sizeof(head));
      const auto bytes = entry.vector.view().bytes;
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

absl::StatusOr<ExactSum> ExactSum::Decode(std::span<const std::byte> bytes,
                                          std::vector<ChannelSpec> channels,
                                          const GridOrder& order) {
  // Check the header first, so that nothing is allocated for a sum of another plan.
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                         Plan::Make(std::move(channels), order));
  if (bytes.size() < sizeof(Header)) return Refused("it is shorter than a header");
  const auto header = Read<Header>(bytes, 0);
  if (header.magic != kMagic) return Refused("it is not an encoded sum");
  if (header.version != kVersion) {
    return Refused(
        absl::StrCat("it has version ", header.version, ", this program reads version ", kVersion));
  }
  if (header.plan != plan->digest.bytes || header.channels != plan->channels.size()) {
    return Refused("it was made for other channels, bounds or another cohort");
  }
  ExactSum sum(std::make_unique<State>(plan, State::Integers::kUnset));
  State& s = *sum.state_;
  s.clients = header.clients;
  s.multiplicity = header.multiplicity;
  s.weight = header.weight;
  MACAW_RETURN_IF_ERROR(s.ReadBlocks(bytes));
  MACAW_RETURN_IF_ERROR(s.Check());
  return sum;
}

absl::Status ExactSum::State::ReadBlocks(std::span<const std::byte> bytes) {
  uint64_t offset = HeadBytes(channels.size());
  for (const Channel& channel : channels) offset += Padded(channel.integers.size());
  if (bytes.size() < offset) {
    return Refused(
        absl::StrCat("it has ", bytes.size(), " bytes, its channels alone need ", offset));
  }
  uint64_t block = HeadBytes(channels.size());
  for (size_t c = 0; c < channels.size(); ++c) {
    Channel& channel = channels[c];
    const auto head = Read<ChannelHeader>(bytes, sizeof(Header) + c * sizeof(ChannelHeader));
    channel.max_abs = head.max_abs;
    if (const size_t size = channel.integers.size(); size != 0) {
      std::memcpy(channel.integers.bytes().data(), bytes.data() + block, size);
      block += Padded(size);
    }
    const uint64_t expected = spec(c).reduction == Reduction::kCollect ? clients : 0;
    if (head.collected != expected ||
        head.collected > (bytes.size() - offset) / CollectedBytes(spec(c))) {
      return Refused(absl::StrCat("channel '", spec(c).name, "' cannot hold ", head.collected,
                                  " vectors here"));
    }
    for (uint64_t i = 0; i < head.collected; ++i, offset += CollectedBytes(spec(c))) {
      MACAW_RETURN_IF_ERROR(ReadCollected(c, bytes.subspan(offset, CollectedBytes(spec(c)))));
    }
  }
  if (offset != bytes.size()) {
    return Refused(absl::StrCat("it has ", bytes.size(), " bytes instead of ", offset));
  }
  return absl::OkStatus();
}

absl::Status ExactSum::State::ReadCollected(size_t c, std::span<const std::byte> bytes) {
  const auto head = Read<CollectedHeader>(bytes, 0);
  std::vector<Collected>& collected = channels[c].collected;
  if (head.multiplicity == 0 || head.multiplicity > plan->order.max_multiplicity ||
      (!collected.empty() && collected.back().client.value >= head.client)) {
    return Refused(absl::StrCat("channel '", spec(c).name,
                                "': the collected clients are not in order at client ", head.client,
                                ", or its multiplicity is not as planned"));
  }
  FlatVector vector = FlatVector::Unset(spec(c).layout);
  std::memcpy(vector.view().bytes.data(), bytes.data() + sizeof(head), vector.view().bytes.size());
  if (!(LargestMagnitude(vector.view()) <= spec(c).bound)) {
    return Refused(absl::StrCat("channel '", spec(c).name, "': the vector of client ", head.client,
                                " is not finite or beyond the bound"));
  }
  collected.push_back(
      {ClientId(head.client), static_cast<uint32_t>(head.multiplicity), std::move(vector)});
  return absl::OkStatus();
}

absl::Status ExactSum::State::Check() const {
  const GridOrder& order = plan->order;
  if (clients > multiplicity || multiplicity > order.total_multiplicity ||
      (clients == 0) != (multiplicity == 0)) {
    return Refused(absl::StrCat("it counts ", clients, " clients with total multiplicity ",
                                multiplicity, " of ", order.total_multiplicity, " planned"));
  }
  if (multiplicity > clients * order.max_multiplicity || weight < 0 ||
      weight > plan->weight_limit || (clients == 0 && weight != 0)) {
    return Refused("its weight or multiplicity is more than the plan allows");
  }
  for (size_t c = 0; c < channels.size(); ++c) {
    const auto refuse = [&](absl::string_view why) {
      return Refused(absl::StrCat("channel '", spec(c).name, "' ", why));
    };
    const Channel& channel = channels[c];
    if (!(channel.max_abs >= 0) || !(channel.max_abs <= spec(c).bound) ||
        (clients == 0 && channel.max_abs != 0)) {
      return refuse(absl::StrCat("claims a largest value of ", channel.max_abs));
    }
    const auto span_of = [&](int limb) {
      return BestKernels().span(channel.all().data() + limb * size(c), size(c));
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
