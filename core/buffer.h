#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace macaw {

// 64-byte aligned bytes, zero after construction; sizes are in bytes. Constructors throw
// std::bad_alloc. Movable. Not thread-safe, except that many threads may read at once.
class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  // Gives the memory back: mapped bytes and the file's descriptor as Adopt got them.
  using Release = void (*)(std::byte* data, size_t mapped, int file);

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  // A buffer with arbitrary contents, for a caller that writes every byte. It saves clearing a
  // large model that is then overwritten.
  static AlignedBuffer Unset(size_t size);
  // Like Unset, but from 128 KiB on in a memory file that other processes can map
  // (proto/wire/shared_memory.h). Where the system has none, and where large blocks lie in files of
  // a folder (core/page_pool.h), it is an ordinary buffer.
  static AlignedBuffer Shareable(size_t size);
  // Memory of somebody else, which `release` gives back.
  static AlignedBuffer Adopt(std::byte* data, size_t size, Release release, size_t mapped,
                             int file);

  // The memory file; −1: there is none. It holds the bytes, zeros up to a multiple of kAlignment,
  // and a label of kAlignment bytes, zero until whoever shares the buffer writes it.
  int memory_file() const { return data_ == nullptr ? -1 : data_.get_deleter().file; }
  static size_t MemoryFileBytes(size_t size);

  // Forgets the bytes from `size` on, whose memory stays taken if it was written. Not for a memory
  // file.
  void Truncate(size_t size) { size_ = size < size_ ? size : size_; }

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
  struct Free {
    Free() : Free(nullptr, 0, -1) {}
    Free(Release release, size_t mapped, int file) : release(release), mapped(mapped), file(file) {}
    void operator()(std::byte* data) const { release(data, mapped, file); }
    Release release;
    size_t mapped;
    int file;
  };

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace macaw
