#include "aggregation/device_sum.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregation/device_sum-inl.h"
#include "aggregation/device_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/status.h"

namespace macaw::aggregation {
namespace {

using device::Launch;
using device::Memory;

constexpr size_t kPieceSize = size_t{1} << 16;  // elements that one block measures at a time

template <typename T>
std::byte* Address(T* pointer) {
  return reinterpret_cast<std::byte*>(pointer);
}

}  // namespace

bool DeviceSum::OnDevice(const ChannelSpec& channel) {
  return channel.layout->dtype() == DType::kF32 && channel.reduction != Reduction::kCollect;
}

DeviceSum::DeviceSum(std::unique_ptr<State> state) : state_(std::move(state)) {}

DeviceSum::~DeviceSum() { state_->queue.Wait().IgnoreError(); }  // before the memory is freed

absl::StatusOr<std::unique_ptr<DeviceSum>> DeviceSum::Make(device::Device& device,
                                                           device::Queue& queue,
                                                           std::vector<ChannelSpec> channels,
                                                           const GridOrder& order,
                                                           uint32_t most_pending) {
  auto state = std::make_unique<State>(device, queue);
  state->most_pending = std::max(most_pending, 1U);
  std::unique_ptr<DeviceSum> sum(new DeviceSum(std::move(state)));
  MACAW_RETURN_IF_ERROR(sum->Renew(std::move(channels), order));
  return sum;
}

absl::Status DeviceSum::Renew(std::vector<ChannelSpec> channels, const GridOrder& order) {
  State& s = *state_;
  MACAW_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, Plan::Make(std::move(channels), order));
  MACAW_RETURN_IF_ERROR(s.queue.Wait());  // nothing uses the memory any more
  s.plan = std::move(plan);
  s.pending.clear();
  s.rows = 0;
  s.on_host.reset();
  s.host_channels.clear();
  s.host_specs.clear();
  std::vector<State::Channel> before = std::exchange(s.channels, {});
  for (size_t c = 0; c < s.plan->channels.size(); ++c) {
    const ChannelSpec& spec = s.plan->channels[c];
    if (!OnDevice(spec)) {
      s.host_channels.push_back(c);
      s.host_specs.push_back(spec);
      continue;
    }
    State::Channel channel;
    channel.index = c;
    channel.size = spec.layout->size();
    channel.factored = spec.layout->parameter_size();
    channel.pieces = static_cast<uint32_t>((channel.size + kPieceSize - 1) / kPieceSize);
    const size_t place = s.channels.size();
    if (place < before.size() && before[place].size == channel.size)
      channel.integers = std::move(before[place].integers);
    s.channels.push_back(std::move(channel));
  }
  before.clear();
  MACAW_RETURN_IF_ERROR(s.Allocate());
  return s.Empty();
}

absl::Status DeviceSum::State::Allocate() {
  uint32_t most_pieces = 1;
  for (Channel& channel : channels) {
    most_pieces = std::max(most_pieces, channel.pieces);
    if (channel.size == 0 || !channel.integers.empty()) continue;
    MACAW_ASSIGN_OR_RETURN(channel.integers, device.Allocate(channel.size * sizeof(int64_t)));
  }
  if (channels.empty()) return absl::OkStatus();
  const size_t entries = channels.size() * most_pending;
  const auto grow = [&](size_t bytes, Memory& here, Memory* on_host) {
    absl::Status status = device::Grow(device, bytes, /*on_host=*/false, here);
    if (on_host != nullptr) status.Update(device::Grow(device, bytes, /*on_host=*/true, *on_host));
    return status;
  };
  MACAW_RETURN_IF_ERROR(grow(entries * sizeof(FoldVector), vectors, &vectors_host));
  MACAW_RETURN_IF_ERROR(grow(entries * sizeof(Measure), measures, &measures_host));
  MACAW_RETURN_IF_ERROR(grow(most_pending * sizeof(ClientVerdict), verdicts, &verdicts_host));
  return grow(size_t{most_pieces} * most_pending * sizeof(Measure), pieces, nullptr);
}

// Back to a sum of nobody.
absl::Status DeviceSum::State::Empty() {
  clients = multiplicity = 0;
  weight = 0;
  for (Channel& channel : channels) {
    channel.max_abs = 0;
    if (plan->channels[channel.index].reduction == Reduction::kMax) {
      queue.Run(kFillIntegers, ForElements(channel.size),
                {channel.integers.As<int64_t>(), channel.size, kNoKey});
    } else {
      queue.Zero(channel.integers.data(), channel.integers.size());
    }
  }
  if (host_channels.empty()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(on_host, ExactSum::Make(host_specs, plan->order));
  return absl::OkStatus();
}

absl::Status DeviceSum::Add(std::span<const DeviceContribution> contributions) {
  State& s = *state_;
  if (s.pending.size() + contributions.size() > s.most_pending) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a device's sum made for ", s.most_pending, " pending clients has ", s.pending.size(),
        " and cannot take ", contributions.size(), " more: settle it first"));
  }
  for (const DeviceContribution& contribution : contributions) {
    if (contribution.values.size() != s.plan->channels.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", contribution.client.value, ": gave ", contribution.values.size(),
                       " channels instead of ", s.plan->channels.size()));
    }
    for (const State::Channel& channel : s.channels) {
      if (contribution.values[channel.index].on_device != nullptr || channel.size == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("client ", contribution.client.value, ": channel '",
                       s.plan->channels[channel.index].name, "': no vector on the device"));
    }
  }
  s.Begin(contributions);
  return absl::OkStatus();
}

void DeviceSum::State::Begin(std::span<const DeviceContribution> contributions) {
  const size_t first = pending.size();
  for (const DeviceContribution& contribution : contributions) {
    Pending client;
    client.client = contribution.client;
    client.weight = contribution.weight;
    client.multiplicity = contribution.multiplicity;
    client.status = plan->CheckContribution(contribution.client, contribution.weight,
                                            contribution.multiplicity, multiplicity, weight);
    if (client.status.ok() && on_host.has_value()) {
      std::vector<ConstVectorView> views;
      for (const size_t c : host_channels) views.push_back(contribution.values[c].on_host);
      client.status = on_host->Check(
          {contribution.client, contribution.weight, contribution.multiplicity, views});
      for (size_t i = 0; client.status.ok() && i < views.size(); ++i)
        client.on_host.push_back(FlatVector::CopyOf(views[i], host_specs[i].layout));
    }
    if (client.status.ok()) {
      multiplicity += contribution.multiplicity;
      weight += plan->ToUnits(contribution.multiplicity * contribution.weight);
    }
    pending.push_back(std::move(client));
  }
  if (channels.empty()) return;

  // The clients that the device is to look at, in rows of their own.
  const size_t first_row = rows;
  size_t count = 0;
  for (size_t i = first; i < pending.size(); ++i) count += pending[i].status.ok() ? 1 : 0;
  const size_t begin = first_row * channels.size();
  auto* const table = vectors_host.As<FoldVector>() + begin;
  for (size_t i = first; i < pending.size(); ++i) {
    Pending& client = pending[i];
    if (!client.status.ok()) continue;
    const size_t place = rows - first_row;
    for (size_t c = 0; c < channels.size(); ++c) {
      const size_t index = channels[c].index;
      const DeviceContribution::Value& value = contributions[i - first].values[index];
      FoldVector& vector = table[c * count + place];
      vector.values = value.on_device;
      vector.minus = value.minus;
      vector.factor = value.factor;
      vector.scale = IsSum(plan->channels[index].reduction)
                         ? plan->Scale(index, client.weight, client.multiplicity)
                         : 0;
    }
    client.row = rows++;
    client.measures = begin + place;
    client.stride = count;
  }
  if (count != 0) Enqueue(first_row, count);
}

void DeviceSum::State::Enqueue(size_t first_row, size_t count) {
  const size_t begin = first_row * channels.size();
  const auto clients_here = static_cast<uint32_t>(count);
  FoldVector* const table = vectors.As<FoldVector>() + begin;
  ClientVerdict* const verdict = verdicts.As<ClientVerdict>() + first_row;
  queue.CopyIn(Address(table), {Address(vectors_host.As<FoldVector>() + begin),
                                channels.size() * count * sizeof(FoldVector)});
  for (size_t c = 0; c < channels.size(); ++c) {
    const Channel& channel = channels[c];
    const ChannelSpec& spec = plan->channels[channel.index];
    const uint32_t threads = device.info().best_threads;
    const size_t items = count * channel.pieces;
    const Launch measure{static_cast<uint32_t>(std::clamp<size_t>(items, 1, size_t{1} << 20)),
                         threads, static_cast<uint32_t>(threads * sizeof(Measure))};
    if (items != 0) {
      queue.Run(kMeasureVectors, measure,
                {table + c * count, clients_here, channel.pieces, kPieceSize, channel.size,
                 channel.factored, spec.bound, pieces.As<Measure>()});
    }
    queue.Run(kJudgeClients, ForElements(count),
              {pieces.As<Measure>(), clients_here, channel.pieces, static_cast<uint32_t>(c),
               c == 0 ? 1U : 0U, measures.As<Measure>() + begin + c * count, verdict});
  }
  for (size_t c = 0; c < channels.size(); ++c) {
    const Channel& channel = channels[c];
    if (channel.size == 0) continue;
    const bool maximum = plan->channels[channel.index].reduction == Reduction::kMax;
    queue.Run(maximum ? kFoldKeys : kFoldVectors, ForElements(channel.size),
              {table + c * count, verdict, clients_here, channel.integers.As<int64_t>(),
               channel.size, channel.factored});
  }
}

absl::StatusOr<std::vector<absl::Status>> DeviceSum::Settle() {
  State& s = *state_;
  if (s.rows != 0) {
    const size_t measures = s.rows * s.channels.size() * sizeof(Measure);
    const size_t verdicts = s.rows * sizeof(ClientVerdict);
    s.queue.CopyOut({s.measures_host.data(), measures}, s.measures.data());
    s.queue.CopyOut({s.verdicts_host.data(), verdicts}, s.verdicts.data());
    MACAW_RETURN_IF_ERROR(s.queue.Wait());
  }
  std::vector<absl::Status> answers;
  for (State::Pending& client : s.pending) {
    MACAW_ASSIGN_OR_RETURN(absl::Status answer, s.Conclude(client));
    answers.push_back(std::move(answer));
  }
  s.pending.clear();
  s.rows = 0;
  return answers;
}

absl::StatusOr<absl::Status> DeviceSum::State::Conclude(Pending& client) {
  if (!client.status.ok()) return client.status;
  const Measure* const measured = measures_host.As<Measure>() + client.measures;
  const uint32_t refused =
      channels.empty() ? 0 : verdicts_host.As<ClientVerdict>()[client.row].refused;
  if (refused != 0) {
    multiplicity -= client.multiplicity;
    weight -= plan->ToUnits(client.multiplicity * client.weight);
    const Measure& measure = measured[(refused - 1) * client.stride];
    return Annotate(DescribeOffender(plan->channels[channels[refused - 1].index], measure.offender,
                                     measure.value),
                    absl::StrCat("client ", client.client.value));
  }
  if (on_host.has_value()) {
    std::vector<ConstVectorView> views;
    for (const FlatVector& vector : client.on_host) views.push_back(vector.view());
    // It was checked before the device was asked. What can fail now is a client that was added
    // twice.
    MACAW_RETURN_IF_ERROR(on_host->Add({client.client, client.weight, client.multiplicity, views}));
  }
  for (size_t c = 0; c < channels.size(); ++c) {
    const double largest = std::bit_cast<float>(measured[c * client.stride].largest);
    channels[c].max_abs = std::max(channels[c].max_abs, largest);
  }
  ++clients;
  return absl::OkStatus();
}

uint64_t DeviceSum::clients() const { return state_->clients; }

uint64_t DeviceSum::bytes() const {
  const State& s = *state_;
  return s.integers_bytes() + s.vectors.size() + s.measures.size() + s.verdicts.size() +
         s.pieces.size() + s.reduced.size();
}

std::vector<device::HostKernelEntry> SumHostKernels() {
  return {device::HostEntry<MeasureArgs, MeasureVectors>(kMeasureVectors),
          device::HostEntry<JudgeArgs, JudgeClients>(kJudgeClients),
          device::HostEntry<FoldArgs, FoldVectors>(kFoldVectors),
          device::HostEntry<FoldArgs, FoldKeys>(kFoldKeys),
          device::HostEntry<FillIntegersArgs, FillIntegers>(kFillIntegers),
          device::HostEntry<MergeArgs, MergeIntegers>(kMergeIntegers)};
}

}  // namespace macaw::aggregation
