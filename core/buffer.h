#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "core/digest.h"

namespace macaw {

// Where another process of the same user finds a sealed buffer: a file that its owner keeps open.
struct SharedPlace {
  int32_t process = 0;
  int32_t file = -1;
  bool operator==(const SharedPlace&) const = default;
};

// 64-byte aligned bytes, zero after construction; sizes are in bytes. Constructors throw
// std::bad_alloc. Movable. Not thread-safe, except that many threads may read at once.
class AlignedBuffer {
 public:
  // Smaller buffers are copied into messages rather than mapped.
  static constexpr size_t kSmallestShareable = size_t{1} << 20;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  // A buffer with arbitrary contents, for a caller that writes every byte. It saves clearing a
  // large model that is then overwritten.
  static AlignedBuffer Unset(size_t size);
  // Like Unset, but in memory that other processes can map, so that they need no copy. Small
  // buffers, and all buffers on a system without such memory, are ordinary ones. Holds a file
  // descriptor.
  static AlignedBuffer Shareable(size_t size);

  // Declares the contents final; `digest` is their digest. Call it at most once. Other processes
  // can then map a shareable buffer by its digest, and nobody may write to it any more.
  void Seal(const Digest& digest);
  // Set only for a sealed, shareable buffer; valid while the buffer lives.
  std::optional<SharedPlace> place() const;
  // Maps a sealed buffer of another process (or of this one), read-only. The bytes stay valid after
  // the owner is gone. Fails unless a sealed buffer of that digest and size is there, for example
  // when the owner has freed it meanwhile. The digest is compared, not computed again.
  static absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Map(const SharedPlace& place,
                                                                  const Digest& digest,
                                                                  size_t size);

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  size_t size() const { return size_; }
  template <typename T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  // Gives memory back to malloc, or to the cache of mapped blocks.
  struct Free {
    Free() : Free(0, -1) {}
    Free(size_t mapped, int file) : mapped(mapped), file(file) {}
    void operator()(std::byte* data) const;
    size_t mapped;  // bytes mapped; 0: the memory is malloc's
    int file;       // the owner's file of a shareable buffer, or −1
  };
  AlignedBuffer(void* data, size_t size, Free free)
      : data_(static_cast<std::byte*>(data), free), size_(size) {}

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  bool sealed_ = false;
};

}  // namespace macaw
