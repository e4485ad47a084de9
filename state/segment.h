#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/fd.h"
#include "core/vector.h"

namespace macaw::state {

// One file of slots of equal size, each for one record, which is written once. The file is sparse:
// slots that were never written, or were erased, take no room on disk. A slot is empty if its first
// bytes are zero. Thread-safe, also between processes, as long as no two write the same slot.
class Segment {
 public:
  static constexpr uint64_t kBlock = 4096;  // the smallest unit that file systems free

  struct Shape {
    uint64_t record = 0;  // bytes written and read
    uint64_t stride = 0;  // distance between slots in bytes
    uint64_t slots = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  enum class Mode { kExisting, kCreate };
  // kNotFound if it must exist and does not.
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& path, const Shape& shape,
                                                       Mode mode);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Reads the whole record, or its first `bytes`. Beyond the end of the file, everything is zero.
  absl::Status Read(uint64_t slot, std::span<std::byte> bytes) const;
  // Writes the body first and the first `header` bytes last. So a record with a header is complete,
  // unless the machine crashed; its checksum tells.
  absl::Status Write(uint64_t slot, std::span<const std::byte> record, uint64_t header);
  absl::Status Sync();

  // Empties the slots (sorted) and gives their room back to the file system, for whole blocks that
  // hold nothing else. `ended`: no process writes slots before this one any more. From there on
  // even empty slots are not touched, because a record may be about to be written.
  absl::Status Erase(std::span<const uint64_t> slots, uint64_t ended);
  absl::StatusOr<uint64_t> BytesOnDisk() const;
  // The number of slots that may be in use: all later ones are empty.
  absl::StatusOr<uint64_t> UsedSlots() const;

  const std::string& path() const { return path_; }

 private:
  Segment(std::string path, const Shape& shape, Fd fd)
      : path_(std::move(path)), shape_(shape), fd_(std::move(fd)) {}
  absl::Status Failed(const char* what) const;
  bool Empty(uint64_t slot) const;
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);

  const std::string path_;
  const Shape shape_;
  const Fd fd_;
};

}  // namespace macaw::state
