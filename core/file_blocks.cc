#include "core/file_blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/page_pool.h"
#include "core/shared_memory.h"

namespace macaw {
namespace {

constexpr size_t kAtOnce = size_t{16} << 20;       // space is taken in such steps
constexpr size_t kLeastWrite = size_t{16} << 10;   // bytes: a store is cheaper than a call
constexpr size_t kMadeAtOnce = size_t{256} << 10;  // bytes that stay in a cache

struct FileBlock {
  size_t bytes = 0;
  Fd file;
  Space space{};
  size_t taken = 0;    // of the beginning; of memory that is shared with a program: not known
  size_t in_file = 0;  // bytes of the beginning that do not lie in memory
  bool gave_up = false;
};

struct Known {
  absl::Mutex mutex;
  std::map<const std::byte*, FileBlock> blocks ABSL_GUARDED_BY(mutex);  // by their beginnings

  // The block that holds the byte; end(): none.
  std::map<const std::byte*, FileBlock>::iterator Around(const std::byte* data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    auto block = blocks.upper_bound(data);
    if (block == blocks.begin()) return blocks.end();
    --block;
    return data < block->first + block->second.bytes ? block : blocks.end();
  }
};

Known& TheKnown() {
  static auto* const known = new Known();  // buffers may outlive other objects
  return *known;
}

void UnmapKnown(std::byte* data, size_t mapped, int) {
  ForgetFileBlock(data);
  munmap(data, mapped);
}

// The rest of the block lies in memory, and its file is no longer than what was taken.
void GoOnInMemory(std::byte* data, FileBlock& block) {
  void* const rest = mmap(data + block.taken, block.bytes - block.taken, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (rest == MAP_FAILED) throw std::bad_alloc();
  block.in_file = block.taken;
  // What a failed call took of the disk; if this fails, it goes with the file.
  (void)!ftruncate(block.file.get(), static_cast<off_t>(block.taken));
  block.taken = block.bytes;
}

// The file of what lies at `to`, how far in it, and how much of the file follows.
struct InFile {
  int file = -1;  // none: it lies in memory
  size_t offset = 0, bytes = 0;
};

// It stays true while the owner of `to` uses it.
InFile PlaceOf(const std::byte* to) {
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.Around(to);
  if (found == known.blocks.end()) return {};
  const auto& [data, block] = *found;
  const auto offset = static_cast<size_t>(to - data);
  if (offset >= block.in_file) return {};
  return {.file = block.file.get(), .offset = offset, .bytes = block.in_file - offset};
}

// Writes pieces to a file, as many bytes as it takes. Returns how many.
size_t Write(const InFile& place, std::span<const std::span<const std::byte>> pieces) {
  std::array<iovec, 64> some;
  size_t done = 0, piece = 0, at = 0;  // bytes before the pieces' end, of `place`, of the piece
  while (piece < pieces.size() && done < place.bytes) {
    int count = 0;
    size_t bytes = 0;
    for (size_t i = piece, from = at; i < pieces.size() && count < static_cast<int>(some.size());
         ++i, from = 0) {
      const size_t size = std::min(pieces[i].size() - from, place.bytes - done - bytes);
      some[count++] = {const_cast<std::byte*>(pieces[i].data()) + from, size};
      bytes += size;
    }
    const ssize_t written =
        pwritev(place.file, some.data(), count, static_cast<off_t>(place.offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 || (written == 0 && bytes > 0)) break;
    done += static_cast<size_t>(written);
    for (at += static_cast<size_t>(written); piece < pieces.size() && at >= pieces[piece].size();)
      at -= pieces[piece++].size();
  }
  return done;
}

}  // namespace

AlignedBuffer UnsetWithoutSpace(size_t size) {
  const size_t bytes = RoundUpToPage(size);
  Fd file = UnnamedFileFor(bytes);
  if (!file.open() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return AlignedBuffer::Unset(size);
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return AlignedBuffer::Unset(size);
  auto* const begin = static_cast<std::byte*>(data);
  KnowFileBlock(begin, bytes, std::move(file), Space::kTakenFirst);
  return AlignedBuffer::Adopt(begin, size, &UnmapKnown, bytes, -1);
}

void TakeSpace(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.Around(piece.data());
  if (found == known.blocks.end() || found->second.space == Space::kTaken) return;
  auto& [data, block] = *found;
  const auto end = static_cast<size_t>(piece.data() + piece.size() - data);
  if (end <= block.taken) return;
  const size_t until = std::min((end + kAtOnce - 1) / kAtOnce * kAtOnce, block.bytes);
  if (fallocate(block.file.get(), 0, static_cast<off_t>(block.taken),
                static_cast<off_t>(until - block.taken)) == 0) {
    block.taken = until;
  } else {
    GoOnInMemory(const_cast<std::byte*>(data), block);
  }
}

void GiveUpSpace(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.Around(piece.data());
  if (found == known.blocks.end()) return;
  auto& [data, block] = *found;
  const size_t page = RoundUpToPage(1);
  const auto first = static_cast<size_t>(piece.data() - data);
  const size_t begin = RoundUpToPage(first);
  const size_t end = (first + piece.size()) / page * page;
  if (end <= begin) return;
  block.gave_up = true;
  if (fallocate(block.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(begin), static_cast<off_t>(end - begin)) != 0) {
    return;  // a file system without holes: the space goes with the block
  }
  madvise(const_cast<std::byte*>(data) + begin, end - begin, MADV_DONTNEED);  // what is in memory
}

void LeaveToCache(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.Around(piece.data());
  if (found == known.blocks.end()) return;
  const auto& [data, block] = *found;
  const size_t page = RoundUpToPage(1);
  const auto first = static_cast<size_t>(piece.data() - data);
  const size_t begin = RoundUpToPage(first);
  const size_t end = std::min(first + piece.size(), block.in_file) / page * page;
  if (begin < end) madvise(const_cast<std::byte*>(data) + begin, end - begin, MADV_DONTNEED);
}

void Overwrite(std::byte* to, std::span<const std::span<const std::byte>> pieces) {
  size_t size = 0, done = 0;
  for (const auto piece : pieces) size += piece.size();
  if (size >= kLeastWrite) {
    if (const InFile place = PlaceOf(to); place.file >= 0) done = Write(place, pieces);
  }
  for (size_t at = 0; const auto piece : pieces) {
    const size_t written = std::min(piece.size(), std::max(done, at) - at);
    if (written < piece.size())
      std::memcpy(to + at + written, piece.data() + written, piece.size() - written);
    at += piece.size();
  }
}

void Overwrite(std::byte* to, std::span<const std::byte> from) {
  Overwrite(to, std::span<const std::span<const std::byte>>(&from, 1));
}

void OverwriteWith(std::span<std::byte> to,
                   absl::FunctionRef<void(size_t at, std::span<std::byte> piece)> make) {
  if (to.size() < kLeastWrite || PlaceOf(to.data()).file < 0) return make(0, to);
  AlignedBuffer made = AlignedBuffer::Unset(std::min(kMadeAtOnce, to.size()));
  for (size_t at = 0; at < to.size();) {
    const std::span<std::byte> piece = made.bytes().first(std::min(made.size(), to.size() - at));
    make(at, piece);
    Overwrite(to.data() + at, piece);
    at += piece.size();
  }
}

bool TakesSpaceFirst(const std::byte* data) {
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.Around(data);
  return found != known.blocks.end() && found->second.space == Space::kTakenFirst;
}

void KnowFileBlock(const std::byte* data, size_t bytes, Fd file, Space space) {
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  known.blocks[data] = {.bytes = bytes, .file = std::move(file), .space = space, .in_file = bytes};
}

void ForgetFileBlock(const std::byte* data) {
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  known.blocks.erase(data);
}

bool HasItsSpace(const std::byte* data) {
  Known& known = TheKnown();
  const absl::MutexLock lock(&known.mutex);
  const auto found = known.blocks.find(data);
  return found == known.blocks.end() ||
         (found->second.space == Space::kTaken && !found->second.gave_up);
}

}  // namespace macaw
