#include "cli/track/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <utility>

#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {

absl::StatusOr<GrowingFile> GrowingFile::Open(const std::string& path) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.open()) return FileError("cannot open", path);
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  return GrowingFile(path, std::move(fd), size);
}

absl::StatusOr<std::string> GrowingFile::Read() const { return ReadFile(path_); }

absl::Status GrowingFile::Cut(uint64_t bytes) {
  if (bytes == size_) return absl::OkStatus();
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    return FileError("cannot shorten", path_);
  size_ = bytes;
  return absl::OkStatus();
}

absl::Status GrowingFile::Append(absl::string_view bytes) {
  if (!WriteAllAt(fd_, std::as_bytes(std::span(bytes)), size_))
    return FileError("cannot write", path_);
  size_ += bytes.size();
  return absl::OkStatus();
}

}  // namespace macaw::cli
