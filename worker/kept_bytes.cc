#include "worker/kept_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/fd.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::worker {

void KeptBytes::Unmap::operator()(std::byte* data) const { ::munmap(data, size); }

absl::StatusOr<KeptBytes> KeptBytes::Open(const std::string& path, size_t size) {
  const auto map = [size](int flags, int fd) {
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  };
  if (path.empty()) {
    void* const address = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "no memory");
    return KeptBytes(static_cast<std::byte*>(address), size);
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  // Reserves the space first: on a full disk, a write to a hole of a mapped file raises SIGBUS.
  int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size));
  void* address = MAP_FAILED;
  if (error == 0) {
    const bool cut = ::ftruncate(fd.get(), static_cast<off_t>(size)) == 0;
    if (cut) address = map(MAP_SHARED, fd.get());
    error = errno;
  }
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot reserve ", size, " bytes for ", path));
  }
  return KeptBytes(static_cast<std::byte*>(address), size);
}

}  // namespace macaw::worker
