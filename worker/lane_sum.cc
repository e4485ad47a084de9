#include "worker/lane_sum.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::worker {

using aggregation::DeviceSum;
using aggregation::ExactSum;
using algorithms::Displacement;
using algorithms::UpValue;

absl::Status LaneSum::Open(const std::vector<aggregation::ChannelSpec>& channels,
                           const aggregation::GridOrder& order, Where where) {
  if (is_open()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(host_, ExactSum::Make(channels, order));
  channels_ = channels;
  order_ = order;
  if (seat_.has_value() && where == Where::kAnywhere) OpenOnDevice();
  return absl::OkStatus();
}

void LaneSum::OpenOnDevice() {
  absl::Status status;
  if (on_device_ != nullptr) {
    status = on_device_->Renew(channels_, order_);
  } else {
    auto made = DeviceSum::Make(*seat_->device, *seat_->queue, channels_, order_,
                                static_cast<uint32_t>(width_));
    status = made.status();
    if (made.ok()) on_device_ = *std::move(made);
  }
  on_device_open_ = status.ok();
  if (status.ok() || warned_) return;
  warned_ = true;
  Logger("worker").Warning(
      absl::StrCat("sums=host instead of the device's, because \"", status.message(), "\""));
}

absl::StatusOr<const float*> LaneSum::CopyOnDevice(ConstVectorView vector) {
  const std::byte* const from = vector.bytes.data();
  const auto copied = std::ranges::find(copies_, from, &Copy::from);
  if (copied != copies_.end()) return copied->memory.As<float>();
  auto free = std::ranges::find(copies_, nullptr, &Copy::from);
  if (free == copies_.end()) free = copies_.emplace(copies_.end());
  MACAW_RETURN_IF_ERROR(
      device::Grow(*seat_->device, vector.bytes.size(), /*on_host=*/false, free->memory));
  seat_->queue->CopyIn(free->memory.data(), vector.bytes);
  free->from = from;
  return free->memory.As<float>();
}

absl::StatusOr<std::optional<std::vector<LaneSum::OnDevice::Value>>> LaneSum::ForDevice(
    std::span<const UpValue> values, algorithms::Workspace& workspace) {
  if (!on_device_open_) return std::nullopt;
  std::vector<OnDevice::Value> placed(values.size());
  for (size_t c = 0; c < values.size(); ++c) {
    const auto* described = std::get_if<Displacement>(&values[c]);
    if (DeviceSum::OnDevice(channels_[c])) {
      if (described == nullptr || described->end.on_device() == nullptr) return std::nullopt;
      continue;
    }
    MACAW_ASSIGN_OR_RETURN(
        const std::vector<ConstVectorView> on_host,
        algorithms::OnHost(std::span(channels_).subspan(c, 1), values.subspan(c, 1), workspace));
    placed[c].on_host = on_host[0];
  }
  for (size_t c = 0; c < values.size(); ++c) {
    if (!DeviceSum::OnDevice(channels_[c])) continue;
    const auto& described = std::get<Displacement>(values[c]);
    placed[c].on_device = described.end.on_device();
    placed[c].factor = static_cast<float>(described.factor);
    if (described.from.empty()) continue;
    absl::StatusOr<const float*> minus = CopyOnDevice(described.from);
    if (absl::IsResourceExhausted(minus.status())) return std::nullopt;
    MACAW_ASSIGN_OR_RETURN(placed[c].minus, std::move(minus));
  }
  return placed;
}

absl::StatusOr<uint64_t> LaneSum::Add(const Addend& client, std::span<const UpValue> values,
                                      algorithms::Workspace& workspace, algorithms::Ends ends) {
  MACAW_ASSIGN_OR_RETURN(auto placed, ForDevice(values, workspace));
  if (placed.has_value()) {
    places_.push_back(answers_.size());
    answers_.emplace_back();
    OnDevice& waiting = waiting_.emplace_back();
    waiting.client = client.client;
    waiting.weight = client.weight;
    waiting.multiplicity = client.multiplicity;
    waiting.values = waiting_values_.emplace_back(*std::move(placed));
    return host_->MostBytesAlone();
  }
  MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                         algorithms::OnHost(channels_, values, workspace, ends));
  const auto give = [&](size_t c) {
    const auto* described = std::get_if<Displacement>(&values[c]);
    // Then OnHost has made it, and nothing else refers to it.
    const bool made = described != nullptr && (!described->from.empty() || described->factor != 1);
    return made ? workspace.Give(views[c]) : FlatVector();
  };
  const aggregation::Contribution contribution{.client = client.client,
                                               .weight = client.weight,
                                               .multiplicity = client.multiplicity,
                                               .values = views,
                                               .give = give};
  answers_.push_back(host_->Add(contribution));
  if (!answers_.back().ok()) return 0;
  // With a device the number must not depend on where the client was added.
  return seat_.has_value() ? host_->MostBytesAlone(views) : host_->BytesAlone(contribution);
}

absl::StatusOr<std::vector<absl::Status>> LaneSum::Settle() {
  if (!waiting_.empty()) {
    MACAW_RETURN_IF_ERROR(on_device_->Add(waiting_));
    MACAW_ASSIGN_OR_RETURN(std::vector<absl::Status> verdicts, on_device_->Settle());
    for (size_t i = 0; i < verdicts.size(); ++i) answers_[places_[i]] = std::move(verdicts[i]);
  }
  std::vector<absl::Status> answers = std::exchange(answers_, {});
  Forget();
  return answers;
}

void LaneSum::Forget() {
  answers_.clear();
  places_.clear();
  waiting_.clear();
  waiting_values_.clear();
}

std::optional<ExactSum> LaneSum::TakeHost() {
  on_device_open_ = false;
  for (Copy& copy : copies_) copy.from = nullptr;
  Forget();
  std::optional<ExactSum> taken = std::exchange(host_, std::nullopt);
  if (taken.has_value() && taken->clients() == 0) taken.reset();
  return taken;
}

absl::StatusOr<std::optional<ExactSum>> LaneSum::Collect(std::span<LaneSum* const> lanes,
                                                         device::Collective* collective) {
  // A sum a device: that of its first lane, with those of its other lanes.
  std::vector<device::Device*> devices;
  std::vector<DeviceSum*> sums;
  LaneSum* added = nullptr;  // a lane that added somebody
  for (LaneSum* const lane : lanes) {
    if (lane->device() == nullptr) continue;
    const auto known = std::ranges::find(devices, lane->device());
    const auto place = static_cast<size_t>(known - devices.begin());
    if (known == devices.end()) {
      devices.push_back(lane->device());
      sums.push_back(nullptr);
    }
    DeviceSum* const sum = lane->on_device();
    if (sum == nullptr) continue;
    if (sum->clients() > 0) added = lane;
    if (sums[place] == nullptr) {
      sums[place] = sum;
    } else if (sum->clients() > 0) {
      MACAW_RETURN_IF_ERROR(sums[place]->Merge(*sum));
    }
  }
  if (added == nullptr) return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(ExactSum whole, ExactSum::Make(added->channels_, added->order_));
  const auto counts = [](const DeviceSum* sum) { return sum != nullptr && sum->clients() > 0; };
  const bool all = std::ranges::find(sums, nullptr) == sums.end();
  if (collective != nullptr && all && std::ranges::count_if(sums, counts) > 1) {
    MACAW_RETURN_IF_ERROR(DeviceSum::MoveTogether(*collective, sums, whole));
    return whole;
  }
  for (DeviceSum* const sum : sums) {
    if (counts(sum)) MACAW_RETURN_IF_ERROR(sum->MoveTo(whole));
  }
  return whole;
}

}  // namespace macaw::worker
