#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw {

// Where shared memory lies. kFileIfLarge: in a file, where large blocks do (page_pool.h).
enum class Backing : uint8_t { kMemory, kFileIfLarge };

// Zeroed memory that other processes map by its descriptor. Its size is sealed, unless it lies in a
// file: no process can shrink it, which would end another that reads it. Pages that nothing has
// touched take no memory. Thread-safe as far as its bytes are; Grow has no other call beside it.
class SharedMemory {
 public:
  // `name`: for the system's lists of mappings.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Make(const char* name, size_t bytes,
                                                            Backing backing = Backing::kMemory);
  // The same with Grow(). Empty at first.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> MakeGrowing(const char* name);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int file() const { return file_.get(); }  // closes on exec
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Before bytes are written that may lie in a file: takes the space. A ResourceExhausted error
  // says how much there is not.
  absl::Status Reserve(size_t offset, size_t bytes);
  // Makes it at least so large; else by half of what it has. data() changes, and the contents stay.
  // A ResourceExhausted error says how much there is not; the memory is as it was then.
  absl::Status Grow(size_t bytes);

 private:
  SharedMemory(Fd file, bool on_disk) : file_(std::move(file)), on_disk_(on_disk) {}
  absl::Status Resize(size_t bytes);

  const Fd file_;
  const bool on_disk_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// The next multiple of a page.
size_t RoundUpToPage(size_t bytes);

}  // namespace macaw
