#include "core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw {

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Make(const char* name, size_t bytes) {
  const auto refuse = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot share ", bytes, " bytes of memory"));
  };
  Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refuse();
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return refuse();
  return std::unique_ptr<SharedMemory>(
      new SharedMemory(std::move(file), static_cast<std::byte*>(data), bytes));
}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

size_t RoundUpToPage(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace macaw
