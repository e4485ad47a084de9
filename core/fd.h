#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace macaw {

// Owns a file descriptor and closes it. Movable. Threads may share the number while it lives.
class Fd {
 public:
  Fd() = default;
  // Takes what open(), socket() and the like return: a negative number is no descriptor.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();  // does nothing when there is none
  // For whoever closes it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Writes all the bytes, behind the descriptor's position or at `offset`. False: errno says why, and
// some of the bytes may have been written.
bool WriteAll(const Fd& fd, std::span<const std::byte> bytes);
bool WriteAllAt(const Fd& fd, std::span<const std::byte> bytes, uint64_t offset);

}  // namespace macaw
