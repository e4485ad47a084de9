#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"

namespace macaw::training::ondevice {

// What one launch reads, sent in one copy. First everything is added and gets a place; then there
// is memory, and so addresses; then what holds addresses is written; then it is sent. One thread.
class Upload {
 public:
  // Room for bytes that are written at Host(place).
  size_t Reserve(size_t bytes);
  // Bytes that stay where they are until Send. The same bytes are sent once.
  size_t AddShared(std::span<const std::byte> bytes);
  // A copy of the values. No values have a place, too, which nobody reads.
  template <typename T>
  size_t Add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    const std::vector<std::byte>& own = own_.emplace_back(bytes.begin(), bytes.end());
    return AddPart(own);
  }

  // Allocates what has been added, in `host` (page-locked) and `there`.
  absl::Status Allocate(device::Device& owner, device::Memory& host, device::Memory& there);
  template <typename T>
  T* Host(size_t place) const {
    return reinterpret_cast<T*>(host_ + place);
  }
  template <typename T>
  T* Address(size_t place) const {
    return reinterpret_cast<T*>(device_ + place);
  }
  // `host` must stay as it is until the queue's Wait.
  void Send(device::Queue& queue) const;

 private:
  struct Part {
    size_t place = 0;
    std::span<const std::byte> bytes;
  };
  size_t AddPart(std::span<const std::byte> bytes);

  std::deque<std::vector<std::byte>> own_;
  std::vector<Part> parts_;
  std::unordered_map<const std::byte*, size_t> shared_;
  size_t size_ = 0;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace macaw::training::ondevice
