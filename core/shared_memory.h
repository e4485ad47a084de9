#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw {

// Zeroed memory that other processes map by its descriptor. Its size is sealed. Pages that nobody
// has touched take no memory. Thread-safe as far as its bytes are.
class SharedMemory {
 public:
  // `name`: for the system's lists of mappings.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Make(const char* name, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int file() const { return file_.get(); }  // closes on exec
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  SharedMemory(Fd file, std::byte* data, size_t bytes)
      : file_(std::move(file)), data_(data), bytes_(bytes) {}

  const Fd file_;
  std::byte* const data_;
  const size_t bytes_;
};

// The next multiple of a page.
size_t RoundUpToPage(size_t bytes);

}  // namespace macaw
