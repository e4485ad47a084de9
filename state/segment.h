#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/vector.h"

namespace macaw::state {

// One file of equally large slots, each for one record that is written once. The file is sparse:
// slots that were never written, or have been erased, take no room. A slot whose first bytes are
// zero is empty. Thread-safe, also between processes, as long as no two write one slot.
class Segment {
 public:
  struct Shape {
    uint64_t record = 0;  // bytes written and read
    uint64_t stride = 0;  // bytes from slot to slot
    uint64_t slots = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  enum class Mode { kExisting, kCreate };
  // kNotFound when it should exist and does not.
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& path, const Shape& shape,
                                                       Mode mode);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The whole record, or the first `bytes` of it. What lies beyond the end of the file reads as
  // zero.
  absl::Status Read(uint64_t slot, std::span<std::byte> bytes) const;
  // The body first, the first `header` bytes last: a record that has its header was written to the
  // end, unless the machine crashed (its checksum tells).
  absl::Status Write(uint64_t slot, std::span<const std::byte> record, uint64_t header);
  absl::Status Sync();

  // Empties the slots (sorted) and gives their room back to the file system, where whole blocks of
  // it hold nothing else. `ended`: nobody writes a slot before this one any more. From there on
  // even an empty slot is left alone, since its record may be on its way.
  absl::Status Erase(std::span<const uint64_t> slots, uint64_t ended);
  absl::StatusOr<uint64_t> BytesOnDisk() const;
  // Slots before this one may hold something.
  absl::StatusOr<uint64_t> UsedSlots() const;

  const std::string& path() const { return path_; }

 private:
  Segment(std::string path, const Shape& shape, int fd)
      : path_(std::move(path)), shape_(shape), fd_(fd) {}
  absl::Status Failed(const char* what) const;
  bool Empty(uint64_t slot) const;
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);

  const std::string path_;
  const Shape shape_;
  const int fd_;
};

}  // namespace macaw::state
