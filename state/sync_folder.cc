#include "state/sync_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/fd.h"
#include "core/status.h"

namespace macaw::state {
namespace {

namespace fs = std::filesystem;

absl::Status Sync(const std::string& path, int (*sync)(int)) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.open() && errno == ENOENT) return absl::OkStatus();
  if (!fd.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (sync(fd.get()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", path));
}

}  // namespace

absl::Status SyncFolder(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // the file may disappear between listing and opening
    if (entry->is_directory(gone)) MACAW_RETURN_IF_ERROR(SyncFolder(entry->path().string()));
    if (entry->is_regular_file(gone))
      MACAW_RETURN_IF_ERROR(Sync(entry->path().string(), &::fdatasync));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return Sync(folder, &::fsync);
}

}  // namespace macaw::state
