#include "core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/file_blocks.h"
#include "core/page_pool.h"
#include "core/status.h"

namespace macaw {

namespace {

absl::StatusOr<Fd> MakeFile(const char* name) {
  Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open()) return absl::ErrnoToStatus(errno, "cannot make shared memory");
  return file;
}

absl::Status Seal(const Fd& file, int seals) {
  if (::fcntl(file.get(), F_ADD_SEALS, seals | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return absl::ErrnoToStatus(errno, "cannot seal shared memory");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Make(const char* name, size_t bytes,
                                                                 Backing backing) {
  Fd file = backing == Backing::kFileIfLarge ? UnnamedFileFor(bytes) : Fd();
  const bool on_disk = file.open();
  if (!on_disk) {
    MACAW_ASSIGN_OR_RETURN(file, MakeFile(name));
  }
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(file), on_disk));
  MACAW_RETURN_IF_ERROR(memory->Resize(bytes));
  if (!on_disk) MACAW_RETURN_IF_ERROR(Seal(memory->file_, F_SEAL_GROW));
  if (on_disk) {
    Fd same(::fcntl(memory->file(), F_DUPFD_CLOEXEC, 0));
    if (!same.open()) return absl::ErrnoToStatus(errno, "cannot share memory");
    KnowFileBlock(memory->data_, memory->bytes_, std::move(same), Space::kTakenFirst);
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::MakeGrowing(const char* name) {
  MACAW_ASSIGN_OR_RETURN(Fd file, MakeFile(name));
  MACAW_RETURN_IF_ERROR(Seal(file, 0));
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(file), /*on_disk=*/false));
}

absl::Status SharedMemory::Reserve(size_t offset, size_t bytes) {
  if (!on_disk_ || bytes == 0 ||
      ::fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot take ", bytes, " bytes of the disk: ", std::strerror(errno)));
}

SharedMemory::~SharedMemory() {
  if (on_disk_) ForgetFileBlock(data_);
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

absl::Status SharedMemory::Grow(size_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  size_t size = RoundUpToPage(std::max(bytes, bytes_ + bytes_ / 2));
  // Another process may have made the file larger, and it cannot shrink.
  struct stat file {};
  if (::fstat(file_.get(), &file) == 0) size = std::max(size, static_cast<size_t>(file.st_size));
  return Resize(size);
}

absl::Status SharedMemory::Resize(size_t bytes) {
  const auto refuse = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot share ", bytes, " bytes of memory: ", std::strerror(errno)));
  };
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return refuse();
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) return refuse();
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return absl::OkStatus();
}

size_t RoundUpToPage(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace macaw
