// Where a device's sum goes: into another one of the device, to the host, or together with those of
// other devices.
#include <algorithm>
#include <utility>

#include "aggregation/device_sum-inl.h"
#include "aggregation/device_sum_state.h"
#include "core/status.h"

namespace macaw::aggregation {

using device::Memory;

ExactSum::State DeviceSum::State::Counts() const {
  ExactSum::State counts(plan);
  counts.multiplicity = multiplicity;
  counts.weight = weight;
  return counts;
}

absl::Status DeviceSum::State::MergeHost(State& other) {
  if (on_host.has_value()) MACAW_RETURN_IF_ERROR(on_host->Merge(*std::move(other.on_host)));
  for (size_t c = 0; c < channels.size(); ++c)
    channels[c].max_abs = std::max(channels[c].max_abs, other.channels[c].max_abs);
  clients += other.clients;
  multiplicity += other.multiplicity;
  weight += other.weight;
  return absl::OkStatus();
}

absl::Status DeviceSum::Merge(DeviceSum& other) {
  State& s = *state_;
  State& o = *other.state_;
  if (&s.device != &o.device)
    return absl::InvalidArgumentError("the sums are on different devices: use MoveTogether");
  MACAW_RETURN_IF_ERROR(s.CheckSettled());
  MACAW_RETURN_IF_ERROR(o.CheckSettled());
  MACAW_RETURN_IF_ERROR(s.Counts().CheckMerge(o.Counts()));
  MACAW_RETURN_IF_ERROR(o.queue.Wait());
  MACAW_RETURN_IF_ERROR(s.MergeHost(o));
  for (size_t c = 0; c < s.channels.size(); ++c) {
    if (s.channels[c].size == 0) continue;
    const bool maximum = s.plan->channels[s.channels[c].index].reduction == Reduction::kMax;
    s.queue.Run(kMergeIntegers, s.ForElements(s.channels[c].size),
                {o.channels[c].integers.As<int64_t>(), s.channels[c].integers.As<int64_t>(),
                 s.channels[c].size, maximum ? 1U : 0U});
  }
  MACAW_RETURN_IF_ERROR(s.queue.Wait());
  return o.Empty();
}

size_t DeviceSum::State::integers_bytes() const {
  size_t bytes = 0;
  for (const Channel& channel : channels) bytes += channel.integers.size();
  return bytes;
}

absl::StatusOr<std::shared_ptr<Memory>> DeviceSum::State::HostMemory() {
  if (integers_bytes() == 0) return nullptr;
  if (taken == nullptr || taken.use_count() > 1 || taken->size() < integers_bytes()) {
    taken = nullptr;  // a sum that was moved earlier still reads the last one
    MACAW_ASSIGN_OR_RETURN(Memory memory, device.AllocateHost(integers_bytes()));
    taken = std::make_shared<Memory>(std::move(memory));
  }
  return taken;
}

absl::Status DeviceSum::State::Give(std::shared_ptr<Memory> integers, ExactSum& sum) {
  auto given = std::make_unique<ExactSum::State>(plan);
  given->clients = clients;
  given->multiplicity = multiplicity;
  given->weight = weight;
  size_t offset = 0;
  for (const Channel& channel : channels) {
    ExactSum::State::Channel& out = given->channels[channel.index];
    if (channel.size != 0) {
      out.integers = {reinterpret_cast<const int64_t*>(integers->data() + offset), channel.size};
      offset += channel.integers.size();
    }
    out.max_abs = channel.max_abs;
  }
  for (size_t i = 0; i < host_channels.size(); ++i)
    given->channels[host_channels[i]] = std::move(on_host->state_->channels[i]);
  given->lender = std::move(integers);
  if (clients != 0) {
    MACAW_RETURN_IF_ERROR(
        Annotate(given->Check(), absl::StrCat("the sum of ", device.info().name, " refused")));
    MACAW_RETURN_IF_ERROR(sum.Merge(ExactSum(std::move(given))));
  }
  return Empty();
}

absl::Status DeviceSum::MoveTo(ExactSum& sum) {
  State& s = *state_;
  MACAW_RETURN_IF_ERROR(s.CheckSettled());
  MACAW_RETURN_IF_ERROR(sum.state_->CheckMerge(s.Counts()));
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> integers, s.HostMemory());
  size_t offset = 0;
  for (const State::Channel& channel : s.channels) {
    if (channel.size == 0) continue;
    s.queue.CopyOut({integers->data() + offset, channel.integers.size()}, channel.integers.data());
    offset += channel.integers.size();
  }
  MACAW_RETURN_IF_ERROR(s.queue.Wait());
  return s.Give(integers, sum);
}

absl::Status DeviceSum::MoveTogether(device::Collective& collective,
                                     std::span<DeviceSum* const> sums, ExactSum& sum) {
  if (sums.empty() || sums.size() != collective.devices()) {
    return absl::InvalidArgumentError(
        absl::StrCat(sums.size(), " sums for a collective of ", collective.devices(), " devices"));
  }
  State& s = *sums.front()->state_;
  // Everything is checked before the first integer moves.
  ExactSum::State all(s.plan);
  MACAW_RETURN_IF_ERROR(all.CheckMerge(*sum.state_));
  all.multiplicity = sum.state_->multiplicity;
  all.weight = sum.state_->weight;
  for (DeviceSum* const one : sums) {
    const ExactSum::State counts = one->state_->Counts();
    MACAW_RETURN_IF_ERROR(one->state_->CheckSettled());
    MACAW_RETURN_IF_ERROR(all.CheckMerge(counts));
    all.multiplicity += counts.multiplicity;
    all.weight += counts.weight;
    MACAW_RETURN_IF_ERROR(one->state_->queue.Wait());
  }

  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> integers, s.HostMemory());
  size_t offset = 0;
  for (size_t c = 0; c < s.channels.size(); ++c) {
    const State::Channel& channel = s.channels[c];
    if (channel.size == 0) continue;
    MACAW_RETURN_IF_ERROR(
        device::Grow(s.device, channel.integers.size(), /*on_host=*/false, s.reduced));
    std::vector<const int64_t*> parts;
    for (DeviceSum* const one : sums)
      parts.push_back(one->state_->channels[c].integers.As<int64_t>());
    const bool maximum = s.plan->channels[channel.index].reduction == Reduction::kMax;
    MACAW_RETURN_IF_ERROR(collective.Reduce(
        maximum ? device::Collective::Operation::kMaximum : device::Collective::Operation::kSum,
        parts, s.reduced.As<int64_t>(), channel.size));
    s.queue.CopyOut({integers->data() + offset, channel.integers.size()}, s.reduced.data());
    MACAW_RETURN_IF_ERROR(s.queue.Wait());
    offset += channel.integers.size();
  }
  for (DeviceSum* const other : sums.subspan(1)) {
    MACAW_RETURN_IF_ERROR(s.MergeHost(*other->state_));
    MACAW_RETURN_IF_ERROR(other->state_->Empty());
  }
  return s.Give(integers, sum);
}

}  // namespace macaw::aggregation
