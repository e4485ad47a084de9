#include "proto/wire/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "core/page_pool.h"

namespace macaw::wire {
namespace {

static_assert(sizeof(Digest) <= PageBlock::kLabelBytes);  // the digest fits the label

size_t LabelAt(size_t size) {
  return AlignedBuffer::MemoryFileBytes(size) - PageBlock::kLabelBytes;
}

void Unmap(std::byte* data, size_t mapped, int) { munmap(data, mapped); }

}  // namespace

std::optional<fleet::SharedPlace> PublishShared(const fleet::Blob& blob) {
  if (blob.bytes == nullptr || blob.bytes->memory_file() < 0) return std::nullopt;
  const int file = blob.bytes->memory_file();
  const auto& digest = blob.digest.bytes;
  const auto label_at = static_cast<off_t>(LabelAt(blob.bytes->size()));
  if (pwrite(file, digest.data(), digest.size(), label_at) != static_cast<ssize_t>(digest.size()))
    return std::nullopt;
  mprotect(const_cast<std::byte*>(blob.bytes->bytes().data()),
           AlignedBuffer::MemoryFileBytes(blob.bytes->size()), PROT_READ);
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
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return refuse(strerror(errno));
  const auto* const label = static_cast<const std::byte*>(data) + LabelAt(size);
  if (std::memcmp(label, digest.bytes.data(), digest.bytes.size()) != 0) {
    munmap(data, bytes);
    return refuse("another digest");
  }
  struct Mapping {
    Fd file;  // holds the lock, so it is closed after the bytes are unmapped
    AlignedBuffer buffer;
  };
  const auto mapping = std::make_shared<Mapping>(
      Mapping{std::move(file),
              AlignedBuffer::Adopt(static_cast<std::byte*>(data), size, &Unmap, bytes, -1)});
  return std::shared_ptr<const AlignedBuffer>(mapping, &mapping->buffer);
}

}  // namespace macaw::wire
