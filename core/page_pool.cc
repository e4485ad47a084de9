#include "core/page_pool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/fd.h"
#include "core/file_blocks.h"
#include "core/files.h"

namespace macaw {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// They fix the file's size; the bytes may still change.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t RoundUp(size_t size, size_t step) { return (size + step - 1) / step * step; }

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Huge pages matter: with small pages, mapping the memory of a large model takes longer than
// filling it.
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

bool MayWrite(size_t bytes) {
  rlimit most{};  // the file size limit; writing beyond it raises a signal
  return getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= bytes;
}

// An in-memory file whose size is sealed, so that nobody can shorten it while another process has
// it mapped. None when the system cannot provide one of that size.
Fd MakeFile(size_t bytes) {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned MFD_NOEXEC_SEAL = 8;  // from Linux 6.3 on, the system may require it
#endif
  if (!MayWrite(bytes)) return Fd();
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd file(memfd_create(PageBlock::kFileName, kFlags | MFD_NOEXEC_SEAL));
  if (!file.open() && errno == EINVAL) file = Fd(memfd_create(PageBlock::kFileName, kFlags));
  // Reserve all pages here, where a failure can be handled, and not when they are first written.
  if (!file.open() || fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    file.Close();
  }
  return file;
}

// Where large blocks lie in files; null: nowhere.
struct FilePlace {
  std::string folder;
  size_t from = 0;
};
std::atomic<const FilePlace*> file_place = nullptr;

// A file without a name.
Fd MakeUnnamedFile(const std::string& folder) {
  Fd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.open()) return file;
  std::string name = folder + "/block-XXXXXX";  // a file system without such files
  file = Fd(mkostemp(name.data(), O_CLOEXEC));
  if (file.open()) unlink(name.c_str());
  return file;
}

// In a file that nobody else can open. All of its space is taken here, where a failure can be
// handled, and not when a page is written back. Null data: there is no room.
PageBlock NewBlockInFile(const FilePlace& place, size_t bytes) {
  if (!MayWrite(bytes)) return {};
  Fd file = MakeUnnamedFile(place.folder);
  if (!file.open() || fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return {};
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return {};
  const PageBlock block{.data = static_cast<std::byte*>(data), .bytes = bytes, .zero = true};
  KnowFileBlock(block.data, bytes, std::move(file), Space::kTaken);
  return block;
}

PageBlock NewBlock(size_t bytes, Pages pages) {
  if (pages == Pages::kPrivate && LiesInFiles(bytes)) {
    const PageBlock block = NewBlockInFile(*file_place.load(), bytes);
    if (block.data != nullptr) return block;
  }
  if (pages == Pages::kPrivate) return {.data = MapHugePages(bytes), .bytes = bytes, .zero = true};
  Fd file = MakeFile(bytes);
  if (!file.open()) return {};
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return {};
  return {static_cast<std::byte*>(data), bytes, file.Release(), true};
}

// Takes a block in a file out of circulation. False while another process reads it. A process that
// tries to map it later finds no label there and refuses it.
bool Withdraw(const PageBlock& block) {
  if (flock(block.file, LOCK_EX | LOCK_NB) != 0) return false;
  std::memset(block.data + block.bytes - PageBlock::kLabelBytes, 0, PageBlock::kLabelBytes);
  flock(block.file, LOCK_UN);
  return true;
}

void Unmap(const PageBlock& block) {
  ForgetFileBlock(block.data);
  munmap(block.data, block.bytes);
  Fd(block.file).Close();
}

}  // namespace

absl::Status KeepLargeBlocksIn(const std::string& folder, size_t from) {
  const Fd file = MakeUnnamedFile(folder);
  if (!file.open()) return FileError("cannot make a file in", folder);
  if (fallocate(file.get(), 0, 0, 1) != 0)
    return FileError("cannot take space for a file in", folder);
  file_place = new FilePlace{.folder = folder, .from = from};  // lives as long as the process
  return absl::OkStatus();
}

bool LiesInFiles(size_t bytes) {
  const FilePlace* const place = file_place;
  return place != nullptr && bytes >= place->from;
}

Fd UnnamedFileFor(size_t bytes) {
  if (!LiesInFiles(bytes) || !MayWrite(bytes)) return Fd();
  return MakeUnnamedFile(file_place.load()->folder);
}

PagePool& ThePagePool() {
  static auto* const pool = new PagePool();
  return *pool;
}

PagePool::PagePool(size_t most_bytes) : most_bytes_(most_bytes) {
  kept_.reserve(2 * kPatience);  // so that Give never has to allocate
}

PageBlock PagePool::Take(size_t bytes, Pages pages) {
  if (pages == Pages::kPrivate) bytes = RoundUp(bytes, PageBytes());
  if (PageBlock kept = TakeKept(bytes, pages); kept.data != nullptr) return kept;
  PageBlock block = NewBlock(bytes, pages);
  if (block.data != nullptr || pages == Pages::kFile) return block;
  bool freed = false;
  while (UnmapOldest(Which::kAny)) freed = true;
  return freed ? NewBlock(bytes, pages) : PageBlock{};
}

void PagePool::Give(const PageBlock& block) {
  if (block.bytes > most_bytes_ || !HasItsSpace(block.data)) return Unmap(block);
  {
    const absl::MutexLock lock(&mutex_);
    kept_.push_back({block, ++given_});
    kept_.back().block.zero = false;
    bytes_ += block.bytes;
  }
  while (UnmapOldest(Which::kSurplus)) {
  }
}

PageBlock PagePool::TakeKept(size_t bytes, Pages pages) {
  const absl::MutexLock lock(&mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const bool in_file = it->block.file >= 0;
    if (it->block.bytes != bytes || in_file != (pages == Pages::kFile)) continue;
    if (in_file && !Withdraw(it->block)) continue;
    const PageBlock block = it->block;
    kept_.erase(it);
    bytes_ -= block.bytes;
    return block;
  }
  return {};
}

bool PagePool::UnmapOldest(Which which) {
  PageBlock oldest;
  {
    const absl::MutexLock lock(&mutex_);
    if (kept_.empty()) return false;
    const bool surplus = bytes_ > most_bytes_ || given_ - kept_.front().given > kPatience;
    if (which == Which::kSurplus && !surplus) return false;
    oldest = kept_.front().block;
    kept_.erase(kept_.begin());
    bytes_ -= oldest.bytes;
  }
  Unmap(oldest);
  return true;
}

}  // namespace macaw
