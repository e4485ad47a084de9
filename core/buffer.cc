#include "core/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/page_pool.h"

namespace macaw {
namespace {

constexpr size_t kAlignment = AlignedBuffer::kAlignment;
constexpr size_t kLarge = size_t{4} << 20;  // buffers from this size on get pages of their own
constexpr size_t kSmallestShareable = size_t{1} << 17;  // smaller ones are sent, not mapped

size_t RoundUp(size_t size) {
  return (std::max<size_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

// Memory from malloc, aligned by hand. aligned_alloc is not used: glibc 2.36 often cannot reuse
// memory that it got that way and that was freed, even for a request of the same size. With it,
// replacing a thousand client states of 247 kB one by one grew the process to 365 MB; this way it
// stays at 237 MB. The pointer that malloc returned is stored just before the data, in the at least
// 16 bytes that are free there.
std::byte* Allocate(size_t bytes) {
  void* const piece = std::malloc(bytes + kAlignment);
  if (piece == nullptr) throw std::bad_alloc();
  auto* const data = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(piece) + 1));
  std::memcpy(data - sizeof(piece), &piece, sizeof(piece));
  return data;
}

void Deallocate(std::byte* data, size_t, int) {
  void* piece = nullptr;
  std::memcpy(&piece, data - sizeof(piece), sizeof(piece));
  std::free(piece);
}

void GiveBack(std::byte* data, size_t mapped, int file) {
  ThePagePool().Give({.data = data, .bytes = mapped, .file = file});
}

AlignedBuffer FromPool(size_t size, const PageBlock& block) {
  return AlignedBuffer::Adopt(block.data, size, &GiveBack, block.bytes, block.file);
}

enum class Contents { kZero, kAny };

AlignedBuffer Make(size_t size, Contents contents) {
  if (size > PTRDIFF_MAX) throw std::bad_alloc();
  if (size >= kLarge) {
    const PageBlock block = ThePagePool().Take(size, Pages::kPrivate);
    if (block.data == nullptr) throw std::bad_alloc();
    if (contents == Contents::kZero && !block.zero) std::memset(block.data, 0, size);
    return FromPool(size, block);
  }
  const size_t rounded = RoundUp(size);
  std::byte* const data = Allocate(rounded);
  const size_t clear_from = contents == Contents::kZero ? 0 : size;
  std::memset(data + clear_from, 0, rounded - clear_from);
  return AlignedBuffer::Adopt(data, size, &Deallocate, 0, -1);
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t size) : AlignedBuffer(Make(size, Contents::kZero)) {}

AlignedBuffer AlignedBuffer::Unset(size_t size) { return Make(size, Contents::kAny); }

AlignedBuffer AlignedBuffer::Shareable(size_t size) {
  if (size < kSmallestShareable || size > PTRDIFF_MAX || LiesInFiles(size)) return Unset(size);
  const PageBlock block = ThePagePool().Take(MemoryFileBytes(size), Pages::kFile);
  if (block.data == nullptr) return Unset(size);
  std::memset(block.data + size, 0, RoundUp(size) - size);
  return FromPool(size, block);
}

size_t AlignedBuffer::MemoryFileBytes(size_t size) {
  return RoundUp(size) + PageBlock::kLabelBytes;
}

AlignedBuffer AlignedBuffer::Adopt(std::byte* data, size_t size, Release release, size_t mapped,
                                   int file) {
  AlignedBuffer buffer;
  buffer.data_ = std::unique_ptr<std::byte, Free>(data, Free(release, mapped, file));
  buffer.size_ = size;
  return buffer;
}

}  // namespace macaw
