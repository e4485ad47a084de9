#include "device/device.h"

namespace macaw::device {

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this == &other) return *this;
  if (device_ != nullptr) device_->Free(data_, size_, on_host_);
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  on_host_ = std::exchange(other.on_host_, false);
  return *this;
}

Memory::~Memory() {
  if (device_ != nullptr) device_->Free(data_, size_, on_host_);
}

absl::Status Grow(Device& device, size_t bytes, bool on_host, Memory& memory) {
  if (memory.size() >= bytes) return absl::OkStatus();
  memory = Memory();
  absl::StatusOr<Memory> larger = on_host ? device.AllocateHost(bytes) : device.Allocate(bytes);
  if (larger.ok()) memory = *std::move(larger);
  return larger.status();
}

}  // namespace macaw::device
