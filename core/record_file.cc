#include "core/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace macaw {

absl::Status AppendRecord(const Fd& fd, uint64_t end, Pieces pieces, absl::string_view path) {
  std::vector<iovec> left;
  for (const std::span<const std::byte> piece : pieces) {
    if (!piece.empty()) left.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  }
  uint64_t at = end;
  for (size_t first = 0; first < left.size();) {
    const ssize_t written =
        ::pwritev(fd.get(), left.data() + first, static_cast<int>(left.size() - first),
                  static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const absl::Status status = FileError("cannot write", path);
      // If this fails too, the first error is still the one to report.
      (void)!::ftruncate(fd.get(), static_cast<off_t>(end));
      return status;
    }
    at += static_cast<uint64_t>(written);
    auto rest = static_cast<size_t>(written);
    for (; first < left.size() && rest >= left[first].iov_len; ++first) rest -= left[first].iov_len;
    if (first < left.size()) {
      left[first].iov_base = static_cast<char*>(left[first].iov_base) + rest;
      left[first].iov_len -= rest;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordFile> RecordFile::Open(const std::string& path, uint64_t end, mode_t mode) {
  RecordFile file(path, Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, mode)), end);
  if (!file.fd_.open()) return FileError("cannot open", path);
  MACAW_RETURN_IF_ERROR(file.CutTail());
  return file;
}

absl::Status RecordFile::CutTail() {
  if (::ftruncate(fd_.get(), static_cast<off_t>(end_)) != 0) return FileError("cannot cut", path_);
  unsynced_ = true;
  return absl::OkStatus();
}

absl::Status RecordFile::Append(Pieces pieces) {
  MACAW_RETURN_IF_ERROR(AppendRecord(fd_, end_, pieces, path_));
  for (const std::span<const std::byte> piece : pieces) end_ += piece.size();
  unsynced_ = true;
  return absl::OkStatus();
}

absl::Status RecordFile::Sync() {
  if (!unsynced_) return absl::OkStatus();
  if (::fdatasync(fd_.get()) != 0) return FileError("cannot sync", path_);
  unsynced_ = false;
  return absl::OkStatus();
}

}  // namespace macaw
