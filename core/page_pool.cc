#include "core/page_pool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/fd.h"

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

// An in-memory file whose size is sealed, so that nobody can shorten it while another process has
// it mapped. None when the system cannot provide one of that size.
Fd MakeFile(size_t bytes) {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned MFD_NOEXEC_SEAL = 8;  // from Linux 6.3 on, the system may require it
#endif
  rlimit most{};  // the file size limit; writing beyond it raises a signal
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < bytes) return Fd();
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

PageBlock NewBlock(size_t bytes, Pages pages) {
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
  munmap(block.data, block.bytes);
  Fd(block.file).Close();
}

}  // namespace

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
  if (block.bytes > most_bytes_) return Unmap(block);
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
