#include "training/device/upload.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "core/status.h"

namespace macaw::training::ondevice {
namespace {

constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

size_t Upload::Reserve(size_t bytes) {
  const size_t place = size_;
  size_ += Aligned(bytes);
  return place;
}

size_t Upload::AddUnits(size_t count, size_t unit_bytes, Writer write) {
  const size_t at = streamed_;
  streamed_ += Aligned(count * unit_bytes);
  largest_unit_ = std::max(largest_unit_, unit_bytes);
  if (count * unit_bytes > 0) streams_.push_back({at, count, unit_bytes, std::move(write)});
  return at | kStreamed;
}

size_t Upload::AddShared(std::span<const std::byte> bytes) {
  const auto [it, is_new] = shared_.try_emplace(bytes.data(), 0);
  if (!is_new) return it->second;
  it->second = AddUnits(bytes.size(), 1, [bytes](size_t first, size_t count, std::byte* to) {
    std::memcpy(to, bytes.data() + first, count);
  });
  return it->second;
}

absl::Status Upload::Allocate(device::Device& owner, size_t most_bytes, device::Memory& host,
                              device::Memory& there) {
  // A quarter more where it grows: the clients of the next launch have other rows, and page-locked
  // memory takes long to come by.
  const auto grow = [&owner](size_t bytes, size_t most, bool on_host, device::Memory& memory) {
    const size_t more = std::max(bytes, std::min(bytes + bytes / 4, most));
    return device::Grow(owner, bytes <= memory.size() ? bytes : more, on_host, memory);
  };
  const size_t bytes = std::max(size_ + streamed_, kAlignment);
  const size_t most = std::max(most_bytes, size_ + Aligned(largest_unit_) + kAlignment);
  piece_ = std::min(bytes, most);
  MACAW_RETURN_IF_ERROR(grow(piece_, most, /*on_host=*/true, host));
  MACAW_RETURN_IF_ERROR(grow(bytes, SIZE_MAX, /*on_host=*/false, there));
  host_ = host.data();
  device_ = there.data();
  return absl::OkStatus();
}

absl::Status Upload::Send(device::Queue& queue) const {
  for (const Part& part : parts_) {
    std::memcpy(host_ + part.place, part.bytes.data(), part.bytes.size());
  }
  // A piece: bytes [begin, end) of all. Byte `base` of all has the page-locked memory's first
  // place; it is aligned, so that what is aligned on the device is here, too.
  size_t base = 0, begin = 0, end = size_;
  const auto send = [&] {
    queue.CopyIn(device_ + begin, std::span<const std::byte>(host_ + (begin - base), end - begin));
  };
  for (const Stream& stream : streams_) {
    for (size_t done = 0; done < stream.count;) {
      const size_t at = size_ + stream.at + done * stream.unit;
      const size_t room = at < base + piece_ ? base + piece_ - at : 0;
      const size_t count = std::min(stream.count - done, room / stream.unit);
      if (count == 0) {
        send();
        MACAW_RETURN_IF_ERROR(queue.Wait());
        base = at / kAlignment * kAlignment;
        begin = end = at;
        continue;
      }
      stream.write(done, count, host_ + (at - base));
      done += count;
      end = at + count * stream.unit;
    }
  }
  send();
  return absl::OkStatus();
}

}  // namespace macaw::training::ondevice
