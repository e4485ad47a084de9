#include "worker/base_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/blob_digest.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBasesKept = 2;
constexpr char kSuffix[] = ".base";

// Removes all but the newest files.
void RemoveOldBases(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const fs::file_time_type changed = it->last_write_time(gone);
    if (!gone && it->path().extension() == kSuffix)
      files.emplace_back(changed, it->path().string());
  }
  std::ranges::sort(files);
  for (size_t i = 0; i + kBasesKept < files.size(); ++i) {
    std::error_code ignored;
    fs::remove(files[i].second, ignored);
  }
}

}  // namespace

std::string BaseFiles::PathOf(const Digest& digest) const {
  return absl::StrCat(folder_, "/", digest.Hex(), kSuffix);
}

absl::StatusOr<MappedFile> BaseFiles::Read(const Digest& digest) const {
  const std::string path = PathOf(digest);
  if (folder_.empty() || !FileExists(path))
    return absl::NotFoundError(absl::StrCat("no base ", digest.Hex()));
  MACAW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  std::error_code ignored;
  if (BlobDigest(file.bytes()) != digest) {
    fs::remove(path, ignored);
    return absl::NotFoundError(absl::StrCat(path, " is damaged"));
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return file;
}

void BaseFiles::Write(const fleet::Blob& blob) const {
  if (folder_.empty()) return;
  absl::Status status = MakeDirectories(folder_);
  if (status.ok()) status = AtomicWriteFile(PathOf(blob.digest), blob.bytes->bytes());
  if (!status.ok()) {
    Logger("worker").Warning(absl::StrCat("base_not_kept why=\"", status.message(), "\""));
    return;
  }
  RemoveOldBases(folder_);
}

}  // namespace macaw::worker
