#include "state/segment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/fd.h"
#include "core/status.h"

namespace macaw::state {
namespace {

constexpr uint64_t kWorthStarting = 65536;  // bytes
constexpr uint64_t kMark = 128;             // bytes at a slot's start that tell whether it is empty
constexpr uint64_t kStatUnit = 512;         // the unit of st_blocks

}  // namespace

absl::StatusOr<std::shared_ptr<Segment>> Segment::Open(const std::string& path, const Shape& shape,
                                                       Mode mode) {
  const int create = mode == Mode::kCreate ? O_CREAT : 0;
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | create, 0644));
  if (!fd.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return std::shared_ptr<Segment>(new Segment(path, shape, std::move(fd)));
}

absl::Status Segment::Failed(const char* what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path_));
}

absl::Status Segment::Read(uint64_t slot, std::span<std::byte> bytes) const {
  uint64_t offset = slot * shape_.stride;
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read");
    if (got == 0) {
      std::memset(bytes.data(), 0, bytes.size());
      return absl::OkStatus();
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status Segment::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  return WriteAllAt(fd_, bytes, offset) ? absl::OkStatus() : Failed("write");
}

absl::Status Segment::Write(uint64_t slot, std::span<const std::byte> record, uint64_t header) {
  const uint64_t offset = slot * shape_.stride;
  MACAW_RETURN_IF_ERROR(WriteAt(offset + header, record.subspan(header)));
  MACAW_RETURN_IF_ERROR(WriteAt(offset, record.first(header)));
  // Start writing large records to the disk at once, so that the next Sync waits less. A hint only;
  // write errors show in Sync.
  if (record.size() >= kWorthStarting) {
    (void)::sync_file_range(fd_.get(), static_cast<off_t>(offset),
                            static_cast<off_t>(record.size()), SYNC_FILE_RANGE_WRITE);
  }
  return absl::OkStatus();
}

absl::Status Segment::Sync() {
  return ::fdatasync(fd_.get()) == 0 ? absl::OkStatus() : Failed("sync");
}

bool Segment::Empty(uint64_t slot) const {
  std::array<std::byte, kMark> mark{};
  const bool read = Read(slot, mark).ok();
  return read && std::ranges::all_of(mark, [](std::byte b) { return b == std::byte{0}; });
}

absl::Status Segment::Erase(std::span<const uint64_t> slots, uint64_t ended) {
  const std::array<std::byte, kMark> zeros{};
  for (const uint64_t slot : slots) {
    if (!Empty(slot)) MACAW_RETURN_IF_ERROR(WriteAt(slot * shape_.stride, zeros));
  }
  // A block may extend into neighbouring slots that were erased before; it is freed with the last
  // of them.
  const uint64_t reach = kBlock / shape_.stride + 1;
  uint64_t done = 0;  // slots before this one are done
  for (const uint64_t slot : slots) {
    if (slot < done) continue;
    uint64_t first = slot, last = slot;
    while (first > 0 && slot - first < reach && Empty(first - 1)) --first;
    uint64_t beyond = 0;  // the end of the empty slots after the last one asked for
    while (last + 1 < ended && beyond < reach && Empty(last + 1)) {
      ++last;
      beyond = std::ranges::binary_search(slots, last) ? 0 : beyond + 1;
    }
    done = last + 1;
    const uint64_t begin = (first * shape_.stride + kBlock - 1) / kBlock * kBlock;
    uint64_t end = (last + 1) * shape_.stride;
    end = last + 1 == shape_.slots ? (end + kBlock - 1) / kBlock * kBlock : end / kBlock * kBlock;
    if (begin >= end) continue;
    const int punched = ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    static_cast<off_t>(begin), static_cast<off_t>(end - begin));
    // On a file system without holes, the room is freed when the file is deleted.
    if (punched != 0 && errno != EOPNOTSUPP && errno != ENOSYS) return Failed("free room in");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Segment::BytesOnDisk() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Failed("look at");
  return static_cast<uint64_t>(info.st_blocks) * kStatUnit;
}

absl::StatusOr<uint64_t> Segment::UsedSlots() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Failed("look at");
  const auto size = static_cast<uint64_t>(info.st_size);
  return std::min(shape_.slots, (size + shape_.stride - 1) / shape_.stride);
}

}  // namespace macaw::state
