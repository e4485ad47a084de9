#include "worker/base_files.h"

#include <algorithm>
#include <chrono>
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
constexpr char kSuffix[] = ".base", kAside[] = ".part";
// A file that a process is writing changes all the time, but for the sync at its end.
constexpr std::chrono::minutes kAbandoned{10};

// Whether it is what AtomicWriteFile has begun to write of a base: DIGEST.base.SUFFIX.part.
bool IsPartOfABase(const fs::path& path) {
  return path.extension() == kAside && path.stem().stem().extension() == kSuffix;
}

// Removes all but the `kept` newest files, and what killed processes have left.
void MakeRoom(const std::string& folder, size_t kept) {
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  const fs::file_time_type now = fs::file_time_type::clock::now();
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const fs::file_time_type changed = it->last_write_time(gone);
    if (gone) continue;
    if (it->path().extension() == kSuffix) files.emplace_back(changed, it->path().string());
    if (IsPartOfABase(it->path()) && now - changed > kAbandoned) fs::remove(it->path(), gone);
  }
  std::ranges::sort(files);
  for (size_t i = 0; i + kept < files.size(); ++i) {
    std::error_code ignored;
    fs::remove(files[i].second, ignored);
  }
}

}  // namespace

std::string BaseFiles::PathOf(const Digest& digest) const {
  return absl::StrCat(folder_, "/", digest.Hex(), kSuffix);
}

std::string BaseFiles::FolderIn(const std::string& scratch_dir) {
  return scratch_dir.empty() ? "" : absl::StrCat(scratch_dir, "/bases");
}

bool BaseFiles::Has(const Digest& digest) const {
  return !folder_.empty() && FileExists(PathOf(digest));
}

bool BaseFiles::HasAny() const {
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kSuffix) return true;
  }
  return false;
}

absl::StatusOr<MappedFile> BaseFiles::Read(const Digest& digest) const {
  const std::string path = PathOf(digest);
  if (!folder_.empty()) MakeRoom(folder_, kBasesKept);
  if (!Has(digest)) return absl::NotFoundError(absl::StrCat("no base ", digest.Hex()));
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
  MakeRoom(folder_, kBasesKept - 1);
  if (status.ok()) status = AtomicWriteFile(PathOf(blob.digest), blob.bytes->bytes());
  if (!status.ok()) {
    Logger("worker").Warning(absl::StrCat("base_not_kept why=\"", status.message(), "\""));
  }
}

}  // namespace macaw::worker
