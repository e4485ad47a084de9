#include "proto/wire/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/fd.h"
#include "core/page_pool.h"

namespace macaw::wire {
namespace {

static_assert(sizeof(Digest) <= PageBlock::kLabelBytes);  // the digest fits the label

size_t LabelAt(size_t size) {
  return AlignedBuffer::MemoryFileBytes(size) - PageBlock::kLabelBytes;
}

// Memory files of other processes that stay mapped while nobody reads them. An owner uses its files
// again, in the next round, and mapping takes longer than reading what lies there. A mapping keeps
// its memory alive when the owner has freed it, so few are kept, and none for long.
class IdleMappings {
 public:
  // What a file is while somebody has it open or mapped.
  struct File {
    dev_t device;
    ino_t inode;
    size_t bytes;
    bool operator==(const File&) const = default;
  };

  // The file's mapping, which now belongs to the caller; null: there is none.
  std::byte* Take(const File& file) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    ++calls_;
    const auto found = std::ranges::find(idle_, file, &Idle::file);
    std::byte* const data = found == idle_.end() ? nullptr : found->data;
    if (found != idle_.end()) {
      bytes_ -= file.bytes;
      idle_.erase(found);
    }
    UnmapSurplus();
    return data;
  }
  void Give(const File& file, std::byte* data) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    idle_.push_back({file, data, calls_});
    bytes_ += file.bytes;
    UnmapSurplus();
  }

 private:
  static constexpr uint64_t kPatience = 64;  // calls of Take since; some rounds' worth
  struct Idle {
    File file;
    std::byte* data;
    uint64_t since;
  };

  void UnmapSurplus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!idle_.empty() &&
           (bytes_ > PagePool::kMostBytes || calls_ - idle_.front().since > kPatience)) {
      munmap(idle_.front().data, idle_.front().file.bytes);
      bytes_ -= idle_.front().file.bytes;
      idle_.pop_front();
    }
  }

  absl::Mutex mutex_;
  std::deque<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

IdleMappings& TheIdleMappings() {
  static auto* const mappings = new IdleMappings();
  return *mappings;
}

// A mapped file that somebody reads.
class Mapping {
 public:
  Mapping(Fd locked, const IdleMappings::File& file, std::byte* data, size_t size)
      : locked_(std::move(locked)),
        file_(file),
        data_(data),
        buffer_(AlignedBuffer::Adopt(
            data, size, [](std::byte*, size_t, int) {}, 0, -1)) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    // Closing is not enough: what is mapped keeps the lock.
    flock(locked_.get(), LOCK_UN);
    TheIdleMappings().Give(file_, data_);
  }

  const AlignedBuffer& buffer() const { return buffer_; }

 private:
  const Fd locked_;  // while it is locked the owner does not reuse the memory
  const IdleMappings::File file_;
  std::byte* const data_;
  const AlignedBuffer buffer_;
};

}  // namespace

std::optional<fleet::SharedPlace> PublishShared(const fleet::Blob& blob) {
  if (blob.bytes == nullptr || blob.bytes->memory_file() < 0) return std::nullopt;
  const int file = blob.bytes->memory_file();
  const auto& digest = blob.digest.bytes;
  const auto label_at = static_cast<off_t>(LabelAt(blob.bytes->size()));
  if (pwrite(file, digest.data(), digest.size(), label_at) != static_cast<ssize_t>(digest.size()))
    return std::nullopt;
  return fleet::SharedPlace{.process = getpid(), .file = file};
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> MapShared(const fleet::SharedPlace& place,
                                                               const Digest& digest, size_t size) {
  const std::string path = absl::StrCat("/proc/", place.process, "/fd/", place.file);
  const auto refuse = [&path](absl::string_view why) {
    return absl::NotFoundError(absl::StrCat("shared buffer ", path, ": ", why));
  };
  if (size > PTRDIFF_MAX || digest.IsZero()) return refuse("no buffer has that size or digest");
  // Check the name before opening: opening a file of another kind may have side effects.
  std::array<char, 64> name{};
  if (readlink(path.c_str(), name.data(), name.size() - 1) < 0) return refuse(strerror(errno));
  if (!absl::StartsWith(name.data(), absl::StrCat("/memfd:", PageBlock::kFileName)))
    return refuse("not a buffer");
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open()) return refuse(strerror(errno));
  // While we hold this lock the owner does not reuse the memory.
  if (flock(file.get(), LOCK_SH | LOCK_NB) != 0) return refuse("given up");
  const size_t bytes = AlignedBuffer::MemoryFileBytes(size);
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || static_cast<size_t>(status.st_size) != bytes)
    return refuse("another size");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refuse("not sealed");
  const IdleMappings::File mapped = {status.st_dev, status.st_ino, bytes};
  std::byte* data = TheIdleMappings().Take(mapped);
  if (data == nullptr) {
    void* const made = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (made == MAP_FAILED) return refuse(strerror(errno));
    data = static_cast<std::byte*>(made);
  }
  const auto mapping = std::make_shared<const Mapping>(std::move(file), mapped, data, size);
  if (std::memcmp(data + LabelAt(size), digest.bytes.data(), digest.bytes.size()) != 0)
    return refuse("another digest");
  return std::shared_ptr<const AlignedBuffer>(mapping, &mapping->buffer());
}

}  // namespace macaw::wire
