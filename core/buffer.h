#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "core/digest.h"

namespace macaw {

// Where another process of this user finds a sealed buffer: a file that its owner has open.
struct SharedPlace {
  int32_t process = 0;
  int32_t file = -1;
  bool operator==(const SharedPlace&) const = default;
};

// 64-byte aligned bytes, zero at start; sizes are in bytes. Constructors throw std::bad_alloc.
// Movable; one thread, or many that only read.
class AlignedBuffer {
 public:
  // Smaller buffers are copied into messages rather than mapped.
  static constexpr size_t kSmallestShareable = size_t{1} << 20;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  // Bytes of any value, for an owner who writes every one of them: a large model is not cleared
  // only to be overwritten.
  static AlignedBuffer Unset(size_t size);
  // The same, in memory that other processes can map instead of being sent a copy, if it is large
  // and the system has such memory; it holds a file descriptor.
  static AlignedBuffer Shareable(size_t size);

  // Once: the bytes have this digest. Shareable ones can be mapped by it, and written no more.
  void Seal(const Digest& digest);
  // Of a sealed, shareable buffer, while it lives.
  std::optional<SharedPlace> place() const;
  // The bytes of another process' buffer, or this one's: read-only, and there even after it has
  // gone. Refuses whatever is not a sealed buffer of that digest and size, as when the owner has
  // given its buffer up meanwhile; the digest is not computed anew.
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
  // Gives memory back: to malloc, or what is mapped to the system.
  struct Free {
    Free() : Free(0, -1) {}
    Free(size_t mapped, int file) : mapped(mapped), file(file) {}
    void operator()(std::byte* data) const;
    size_t mapped;  // bytes; 0: malloc's
    int file;       // of a shareable buffer's owner, or −1
  };
  AlignedBuffer(void* data, size_t size, Free free)
      : data_(static_cast<std::byte*>(data), free), size_(size) {}

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  bool sealed_ = false;
};

}  // namespace macaw
