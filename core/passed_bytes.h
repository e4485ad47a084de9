#pragma once

#include <cstddef>
#include <span>

// Large blocks that lie in files: a process keeps in memory what it is reading or writing, and not
// what it has passed. Thread-safe. file_blocks.cc knows the blocks and has the code.
namespace macaw {

// The piece is needed next only later: its whole pages leave this process's memory, and the system
// keeps their contents in its cache while it has room. Does nothing for what lies in no file.
void LeaveToCache(std::span<const std::byte> piece);

// Leaves what has been passed of some bytes that are read or written from their beginning on, some
// megabytes at a time. So a pass over a large vector takes few megabytes of a process. One thread.
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
