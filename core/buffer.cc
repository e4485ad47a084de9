#include "core/buffer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/mutex.h"

namespace macaw {
namespace {

constexpr size_t kAlignment = 64;  // bytes
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;  // from here on: pages of its own
constexpr char kFileName[] = "macaw-buffer";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // of the size, not the bytes

size_t RoundUp(size_t size, size_t step) {
  return (std::max<size_t>(size, 1) + step - 1) / step * step;
}

// Aligned memory of malloc's own. Not aligned_alloc's: glibc 2.36 gets that from a larger piece
// and often cannot use what is freed for a request of the same size. A thousand client states of
// 247 kB, replaced one by one, grew to 365 MB that way and stay at 237 so. What malloc gave lies in
// front, in at least its 16 bytes.
std::byte* Allocate(size_t bytes) {
  void* const piece = std::malloc(bytes + kAlignment);
  if (piece == nullptr) throw std::bad_alloc();
  auto* const data =
      reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(piece) + 1, kAlignment));
  std::memcpy(data - sizeof(piece), &piece, sizeof(piece));
  return data;
}

void Deallocate(std::byte* data) {
  void* piece = nullptr;
  std::memcpy(&piece, data - sizeof(piece), sizeof(piece));
  std::free(piece);
}

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// `bytes` of zeros, whole pages, from a huge page's boundary on; null when there are none. In small
// pages, a model takes longer to come by than to fill.
std::byte* MapHugePages(size_t bytes) {
  const size_t reserved = bytes + kHugePage;
  void* const begin =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  const size_t before =
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  auto* const data = static_cast<std::byte*>(begin) + before;
  if (before > 0) munmap(begin, before);
  munmap(data + bytes, kHugePage - before);
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: without it, pages are small
  return data;
}

// A shareable buffer's file: the bytes, padded, then their digest, zero until they are sealed.
size_t DigestAt(size_t size) { return RoundUp(size, kAlignment); }
size_t FileBytes(size_t size) { return DigestAt(size) + sizeof(Digest); }

// A new file in memory that nobody can cut off under those who have mapped it; −1 when there is
// none of so many bytes.
int MakeFile(size_t bytes) {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned MFD_NOEXEC_SEAL = 8;  // Linux 6.3, which may insist on it
#endif
  rlimit most{};  // of files; beyond it the system sends a signal
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < bytes) return -1;
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int file = memfd_create(kFileName, kFlags | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL) file = memfd_create(kFileName, kFlags);
  if (file < 0) return -1;
  // Pages are reserved here, where that may fail, and not when they are first written.
  if (fallocate(file, 0, 0, static_cast<off_t>(bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, kSeals) == 0) {
    return file;
  }
  close(file);
  return -1;
}

// The same, mapped; null when there is none.
std::byte* MapFile(size_t bytes, int& file) {
  file = MakeFile(bytes);
  if (file < 0) return nullptr;
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (data != MAP_FAILED) return static_cast<std::byte*>(data);
  close(file);
  return nullptr;
}

// Large memory that was given back, for the next buffer of that size and kind: a round asks for
// what the round before it asked for, and the system takes longer to find and clear pages than we
// to fill them. What nobody asks for meanwhile goes back to the system. Thread-safe.
class Kept {
 public:
  struct Piece {
    std::byte* data = nullptr;
    size_t bytes = 0;
    int file = -1;       // of a shareable one
    uint64_t given = 0;  // when, in pieces
  };

  Kept() { pieces_.reserve(2 * kPatience); }  // giving memory back must not need any

  // Null data when there is none.
  Piece Take(size_t bytes, bool shareable) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(&mutex_);
    for (auto it = pieces_.begin(); it != pieces_.end(); ++it) {
      if (it->bytes != bytes || (it->file >= 0) != shareable) continue;
      if (shareable && !Withdraw(*it)) continue;
      const Piece piece = *it;
      pieces_.erase(it);
      bytes_ -= piece.bytes;
      return piece;
    }
    return {};
  }

  void Give(Piece piece) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (piece.bytes > kMostBytes) return Unmap(piece);
    {
      const MutexLock lock(&mutex_);
      piece.given = ++given_;
      pieces_.push_back(piece);
      bytes_ += piece.bytes;
    }
    while (UnmapOldest(/*surplus_only=*/true)) {
    }
  }

  // Where memory is short. False when there was nothing.
  bool Clear() ABSL_LOCKS_EXCLUDED(mutex_) {
    bool any = false;
    while (UnmapOldest(/*surplus_only=*/false)) any = true;
    return any;
  }

 private:
  static constexpr size_t kMostBytes = size_t{512} << 20;
  static constexpr uint64_t kPatience = 64;  // pieces given since: some rounds' worth

  // False while somebody has it mapped. Who comes too late finds no digest.
  static bool Withdraw(const Piece& piece) {
    if (flock(piece.file, LOCK_EX | LOCK_NB) != 0) return false;
    const bool ours = mprotect(piece.data, piece.bytes, PROT_READ | PROT_WRITE) == 0;
    if (ours) std::memset(piece.data + piece.bytes - sizeof(Digest), 0, sizeof(Digest));
    flock(piece.file, LOCK_UN);
    return ours;
  }
  static void Unmap(const Piece& piece) {
    munmap(piece.data, piece.bytes);
    if (piece.file >= 0) close(piece.file);
  }
  // Whether there was one to unmap.
  bool UnmapOldest(bool surplus_only) ABSL_LOCKS_EXCLUDED(mutex_) {
    Piece oldest;
    {
      const MutexLock lock(&mutex_);
      if (pieces_.empty()) return false;
      const bool surplus = bytes_ > kMostBytes || given_ - pieces_.front().given > kPatience;
      if (surplus_only && !surplus) return false;
      oldest = pieces_.front();
      pieces_.erase(pieces_.begin());
      bytes_ -= oldest.bytes;
    }
    Unmap(oldest);
    return true;
  }

  Mutex mutex_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
};

Kept& KeptPieces() {
  static auto* const kept = new Kept();  // buffers may outlive every other object
  return *kept;
}

struct OpenFile {
  int number = -1;
  ~OpenFile() {
    if (number >= 0) close(number);
  }
};

struct Memory {
  std::byte* data = nullptr;
  size_t mapped = 0;
  bool zero = false;
};

Memory GetMemory(size_t size) {
  if (size > PTRDIFF_MAX) throw std::bad_alloc();
  if (size >= kLarge) {
    const size_t mapped = RoundUp(size, PageBytes());
    if (const Kept::Piece kept = KeptPieces().Take(mapped, false); kept.data != nullptr)
      return {kept.data, mapped, false};
    std::byte* data = MapHugePages(mapped);
    if (data == nullptr && KeptPieces().Clear()) data = MapHugePages(mapped);
    if (data == nullptr) throw std::bad_alloc();
    return {data, mapped, true};
  }
  const size_t rounded = RoundUp(size, kAlignment);
  std::byte* const data = Allocate(rounded);
  std::memset(data + size, 0, rounded - size);
  return {data, 0, false};
}

}  // namespace

void AlignedBuffer::Free::operator()(std::byte* data) const {
  if (mapped == 0) return Deallocate(data);
  KeptPieces().Give({.data = data, .bytes = mapped, .file = file});
}

AlignedBuffer AlignedBuffer::Unset(size_t size) {
  const Memory memory = GetMemory(size);
  return {memory.data, size, Free(memory.mapped, -1)};
}

AlignedBuffer::AlignedBuffer(size_t size) {
  const Memory memory = GetMemory(size);
  if (!memory.zero) std::memset(memory.data, 0, size);
  *this = AlignedBuffer(memory.data, size, Free(memory.mapped, -1));
}

AlignedBuffer AlignedBuffer::Shareable(size_t size) {
  if (size < kSmallestShareable || size > PTRDIFF_MAX) return Unset(size);
  const size_t bytes = FileBytes(size);
  if (const Kept::Piece kept = KeptPieces().Take(bytes, true); kept.data != nullptr)
    return {kept.data, size, Free(bytes, kept.file)};
  int file = -1;
  if (std::byte* const data = MapFile(bytes, file); data != nullptr)
    return {data, size, Free(bytes, file)};
  return Unset(size);
}

void AlignedBuffer::Seal(const Digest& digest) {
  if (sealed_ || data_ == nullptr) return;
  sealed_ = true;
  const Free& memory = data_.get_deleter();
  if (memory.file < 0) return;
  const size_t at = DigestAt(size_);
  std::memset(data_.get() + size_, 0, at - size_);
  std::memcpy(data_.get() + at, digest.bytes.data(), digest.bytes.size());
  mprotect(data_.get(), memory.mapped, PROT_READ);  // whoever writes on, finds out
}

std::optional<SharedPlace> AlignedBuffer::place() const {
  const int file = data_.get_deleter().file;
  if (!sealed_ || data_ == nullptr || file < 0) return std::nullopt;
  return SharedPlace{.process = getpid(), .file = file};
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> AlignedBuffer::Map(const SharedPlace& place,
                                                                        const Digest& digest,
                                                                        size_t size) {
  const std::string path = absl::StrCat("/proc/", place.process, "/fd/", place.file);
  const auto refuse = [&path](absl::string_view why) {
    return absl::NotFoundError(absl::StrCat("shared buffer ", path, ": ", why));
  };
  if (size > PTRDIFF_MAX || digest.IsZero()) return refuse("no buffer has that size or digest");
  // A name first: opening any other file may have effects.
  std::array<char, 64> name{};
  if (readlink(path.c_str(), name.data(), name.size() - 1) < 0) return refuse(strerror(errno));
  if (!absl::StartsWith(name.data(), absl::StrCat("/memfd:", kFileName)))
    return refuse("not a buffer");
  OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return refuse(strerror(errno));
  // Until the file is closed its owner knows of a reader, and does not write there again.
  if (flock(file.number, LOCK_SH | LOCK_NB) != 0) return refuse("given up");
  const size_t bytes = FileBytes(size);
  struct stat status {};
  if (fstat(file.number, &status) != 0 || static_cast<size_t>(status.st_size) != bytes)
    return refuse("another size");
  const int seals = fcntl(file.number, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refuse("not sealed");
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.number, 0);
  if (data == MAP_FAILED) return refuse(strerror(errno));
  const auto* const named = static_cast<const std::byte*>(data) + DigestAt(size);
  if (std::memcmp(named, digest.bytes.data(), digest.bytes.size()) != 0) {
    munmap(data, bytes);
    return refuse("another digest");
  }
  auto* const view = new AlignedBuffer();
  view->data_.reset(static_cast<std::byte*>(data));
  view->size_ = size;
  const int held = std::exchange(file.number, -1);
  return std::shared_ptr<const AlignedBuffer>(view, [bytes, held](AlignedBuffer* mapped) {
    munmap(mapped->data_.release(), bytes);
    close(held);
    delete mapped;
  });
}

}  // namespace macaw
