#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"

namespace macaw::training::ondevice {

// What one launch reads, sent in pieces of bounded size, so that no more than a piece is
// page-locked. First everything is added and gets a place; then there is memory, and so addresses;
// then what holds addresses is written; then it is sent. Small things lie in front and are in the
// first piece; vectors and rows are written into each piece as it is sent. One thread.
class Upload {
 public:
  // Writes units [first, first + count) to `to`.
  using Writer = std::function<void(size_t first, size_t count, std::byte* to)>;

  // Room for bytes that are written at Host(place) before Send.
  size_t Reserve(size_t bytes);
  // Bytes that stay where they are until Send. The same bytes are sent once.
  size_t AddShared(std::span<const std::byte> bytes);
  // `count` units, which `write` writes during Send. No piece ends within a unit.
  size_t AddUnits(size_t count, size_t unit_bytes, Writer write);
  // A copy of the values. No values have a place, too, which nobody reads.
  template <typename T>
  size_t Add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    const std::vector<std::byte>& own = own_.emplace_back(bytes.begin(), bytes.end());
    const size_t place = Reserve(bytes.size());
    if (!bytes.empty()) parts_.push_back({place, own});
    return place;
  }

  // Allocates what has been added: a piece in `host` (page-locked), all of it in `there`.
  // `most_bytes`: of a piece; it is larger where the small things or a unit are.
  absl::Status Allocate(device::Device& owner, size_t most_bytes, device::Memory& host,
                        device::Memory& there);
  template <typename T>
  T* Host(size_t place) const {
    return reinterpret_cast<T*>(host_ + place);
  }
  template <typename T>
  T* Address(size_t place) const {
    return reinterpret_cast<T*>(device_ + Offset(place));
  }
  // `host` must stay as it is until the queue's Wait. Waits itself between two pieces.
  absl::Status Send(device::Queue& queue) const;

 private:
  struct Part {
    size_t place = 0;
    std::span<const std::byte> bytes;
  };
  struct Stream {
    size_t at = 0;  // behind the small things
    size_t count = 0, unit = 0;
    Writer write;
  };
  // The places of streams have this bit: where the small things end is known last.
  static constexpr size_t kStreamed = size_t{1} << 63;

  size_t Offset(size_t place) const {
    return (place & kStreamed) != 0 ? size_ + (place & ~kStreamed) : place;
  }

  std::deque<std::vector<std::byte>> own_;
  std::vector<Part> parts_;
  std::vector<Stream> streams_;
  std::unordered_map<const std::byte*, size_t> shared_;
  size_t size_ = 0, streamed_ = 0, largest_unit_ = 0;
  size_t piece_ = 0;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace macaw::training::ondevice
