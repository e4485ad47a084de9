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
#include "absl/synchronization/mutex.h"

namespace macaw {
namespace {

constexpr size_t kAlignment = 64;  // bytes
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;  // allocations from this size on get pages of their own
constexpr char kFileName[] = "macaw-buffer";
// They fix the file's size; the bytes may still change.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t RoundUp(size_t size, size_t step) {
  return (std::max<size_t>(size, 1) + step - 1) / step * step;
}

// Memory from malloc, aligned by hand. aligned_alloc is not used: glibc 2.36 often cannot reuse
// memory that it got that way and that was freed, even for a request of the same size. With it,
// replacing a thousand client states of 247 kB one by one grew the process to 365 MB; this way it
// stays at 237 MB. The pointer that malloc returned is stored just before the data, in the at least
// 16 bytes that are free there.
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

// Maps `bytes` (whole pages) of zeroed memory that starts at a huge page's boundary. Returns null
// when the system has none. Huge pages matter: with small pages, mapping the memory of a large
// model takes longer than filling it.
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
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint; if it is ignored, the pages are small
  return data;
}

// The file of a shareable buffer: the bytes, padding, then their digest, which is zero until Seal.
size_t DigestAt(size_t size) { return RoundUp(size, kAlignment); }
size_t FileBytes(size_t size) { return DigestAt(size) + sizeof(Digest); }

// Creates an in-memory file whose size is sealed, so that nobody can shorten it while another
// process has it mapped. Returns −1 when the system cannot provide one of that size.
int MakeFile(size_t bytes) {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned MFD_NOEXEC_SEAL = 8;  // from Linux 6.3 on, the system may require it
#endif
  rlimit most{};  // the file size limit; writing beyond it raises a signal
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < bytes) return -1;
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int file = memfd_create(kFileName, kFlags | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL) file = memfd_create(kFileName, kFlags);
  if (file < 0) return -1;
  // Reserve all pages here, where a failure can be handled, and not when they are first written.
  if (fallocate(file, 0, 0, static_cast<off_t>(bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, kSeals) == 0) {
    return file;
  }
  close(file);
  return -1;
}

// The same, mapped into memory. Returns null when that is not possible.
std::byte* MapFile(size_t bytes, int& file) {
  file = MakeFile(bytes);
  if (file < 0) return nullptr;
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (data != MAP_FAILED) return static_cast<std::byte*>(data);
  close(file);
  return nullptr;
}

// A cache of large memory blocks that were freed, for the next buffer of the same size and kind. A
// round asks for the same sizes as the round before it, and it takes the system longer to find and
// clear pages than it takes us to fill them. Blocks that nobody asks for go back to the system
// after a while. Thread-safe.
class Kept {
 public:
  struct Piece {
    std::byte* data = nullptr;
    size_t bytes = 0;
    int file = -1;       // of a shareable block; else −1
    uint64_t given = 0;  // the number of blocks given back before this one
  };

  Kept() { pieces_.reserve(2 * kPatience); }  // so that Give never has to allocate

  // A block with null data when there is none.
  Piece Take(size_t bytes, bool shareable) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
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
      const absl::MutexLock lock(&mutex_);
      piece.given = ++given_;
      pieces_.push_back(piece);
      bytes_ += piece.bytes;
    }
    while (UnmapOldest(/*surplus_only=*/true)) {
    }
  }

  // Gives all blocks back to the system, when memory is short. False when there were none.
  bool Clear() ABSL_LOCKS_EXCLUDED(mutex_) {
    bool any = false;
    while (UnmapOldest(/*surplus_only=*/false)) any = true;
    return any;
  }

 private:
  static constexpr size_t kMostBytes = size_t{512} << 20;
  static constexpr uint64_t kPatience = 64;  // blocks given back since; some rounds' worth

  // Takes a shareable block out of circulation. False while another process has it mapped. A
  // process that tries to map it later finds no digest there and refuses it.
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
  // False when there was none to unmap.
  bool UnmapOldest(bool surplus_only) ABSL_LOCKS_EXCLUDED(mutex_) {
    Piece oldest;
    {
      const absl::MutexLock lock(&mutex_);
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

  absl::Mutex mutex_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
};

Kept& KeptPieces() {
  static auto* const kept = new Kept();  // never destroyed: buffers may outlive every other object
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
  // A later write then crashes instead of changing shared data.
  mprotect(data_.get(), memory.mapped, PROT_READ);
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
  // Check the name before opening: opening a file of another kind may have side effects.
  std::array<char, 64> name{};
  if (readlink(path.c_str(), name.data(), name.size() - 1) < 0) return refuse(strerror(errno));
  if (!absl::StartsWith(name.data(), absl::StrCat("/memfd:", kFileName)))
    return refuse("not a buffer");
  OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return refuse(strerror(errno));
  // While we hold this lock the owner does not reuse the memory.
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
