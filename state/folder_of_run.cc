#include "state/folder_of_run.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "state/disk_store.h"

namespace macaw::state {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "run-";

// The folders of runs in `path`, the one that was opened last first.
std::vector<fs::path> FoldersIn(const std::string& path) {
  std::vector<std::pair<fs::file_time_type, fs::path>> folders;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::file_time_type opened = fs::last_write_time(entry->path() / kStoreFile, error);
    if (!error && absl::StartsWith(entry->path().filename().string(), kPrefix))
      folders.emplace_back(opened, entry->path());
    error.clear();  // it is no folder of states
  }
  std::ranges::sort(folders, std::greater());
  std::vector<fs::path> paths;
  for (auto& [opened, folder] : folders) paths.push_back(std::move(folder));
  return paths;
}

}  // namespace

bool IsFolderOf(const Digest& run, const std::string& folder) {
  return fs::path(folder).filename().string() == absl::StrCat(kPrefix, run.Hex());
}

absl::StatusOr<std::string> FolderOfRun(const std::string& path, const Digest& run) {
  const absl::StatusOr<std::string> about = ReadFile(absl::StrCat(path, "/", kStoreFile));
  if (about.ok() && absl::StrContains(*about, run.Hex())) return path;
  const std::string own = absl::StrCat(path, "/", kPrefix, run.Hex());
  MACAW_RETURN_IF_ERROR(MakeDirectories(own));
  std::error_code error;  // of a run that is new here there is no file yet
  fs::last_write_time(own + "/" + kStoreFile, fs::file_time_type::clock::now(), error);
  int kept = 1;
  for (const fs::path& folder : FoldersIn(path)) {
    if (folder == fs::path(own) || ++kept <= kRunsKept) continue;
    fs::remove_all(folder, error);  // one that cannot be removed stays
  }
  return own;
}

}  // namespace macaw::state
