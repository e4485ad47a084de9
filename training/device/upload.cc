#include "training/device/upload.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "core/status.h"

namespace macaw::training::ondevice {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

size_t Upload::Reserve(size_t bytes) {
  const size_t place = size_;
  size_ = (place + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

size_t Upload::AddPart(std::span<const std::byte> bytes) {
  const size_t place = Reserve(bytes.size());
  if (!bytes.empty()) parts_.push_back({place, bytes});
  return place;
}

size_t Upload::AddShared(std::span<const std::byte> bytes) {
  const auto [it, is_new] = shared_.try_emplace(bytes.data(), 0);
  if (is_new) it->second = AddPart(bytes);
  return it->second;
}

absl::Status Upload::Allocate(device::Device& owner, device::Memory& host, device::Memory& there) {
  // A quarter more where it grows: the clients of the next launch have other rows, and page-locked
  // memory takes long to come by.
  const size_t bytes = std::max(size_, kAlignment), more = bytes + bytes / 4;
  MACAW_RETURN_IF_ERROR(
      device::Grow(owner, bytes <= host.size() ? bytes : more, /*on_host=*/true, host));
  MACAW_RETURN_IF_ERROR(
      device::Grow(owner, bytes <= there.size() ? bytes : more, /*on_host=*/false, there));
  host_ = host.data();
  device_ = there.data();
  return absl::OkStatus();
}

void Upload::Send(device::Queue& queue) const {
  for (const Part& part : parts_) {
    std::memcpy(host_ + part.place, part.bytes.data(), part.bytes.size());
  }
  queue.CopyIn(device_, std::span<const std::byte>(host_, size_));
}

}  // namespace macaw::training::ondevice
