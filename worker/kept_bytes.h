#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace macaw::worker {

// A few bytes in a file that is mapped for writing. What is written stays when the process crashes
// or is killed, without a system call. Movable.
class KeptBytes {
 public:
  // Makes the file and its folder if they are missing. The file gets this size: bytes that it had
  // stay, others are 0. With an empty path the bytes are in memory alone.
  static absl::StatusOr<KeptBytes> Open(const std::string& path, size_t size);

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Unmap {
    size_t size = 0;
    void operator()(std::byte* data) const;
  };
  KeptBytes(std::byte* data, size_t size) : data_(data, Unmap{size}), size_(size) {}

  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_ = 0;
};

}  // namespace macaw::worker
