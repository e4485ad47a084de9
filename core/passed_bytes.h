#pragma once

#include <cstddef>
#include <span>

namespace macaw {

// Some bytes that are read or written from their beginning on. Leaves what has been passed to the
// system's cache (LeaveToCache in file_blocks.h), some megabytes at a time, so that a pass over a
// large vector in a file takes few megabytes of a process. One thread.
class PassedBytes {
 public:
  explicit PassedBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Those before `until` have been passed.
  void Until(size_t until);

 private:
  std::span<const std::byte> bytes_;
  size_t left_ = 0;  // of the beginning
};

}  // namespace macaw
