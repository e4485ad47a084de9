#include "training/process/shared_vectors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw::training::process {

absl::StatusOr<std::shared_ptr<SharedVectors>> SharedVectors::Make(LayoutPtr layout) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t stride = (layout->bytes() + page - 1) / page * page;
  const size_t bytes = kPlaces * stride;
  const auto refuse = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot share ", bytes, " bytes of memory"));
  };
  Fd file(::memfd_create("macaw-program", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refuse();
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return refuse();
  return std::shared_ptr<SharedVectors>(
      new SharedVectors(std::move(layout), std::move(file), static_cast<std::byte*>(data), stride));
}

SharedVectors::~SharedVectors() { ::munmap(data_, bytes()); }

VectorView SharedVectors::At(Place place) const {
  return {layout_.get(), {data_ + OffsetOf(place), layout_->bytes()}};
}

}  // namespace macaw::training::process
